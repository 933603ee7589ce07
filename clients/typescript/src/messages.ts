// Messages and their parts, and their conversion to messages of the contract and back.
import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { durationMs, timestampDate } from "@bufbuild/protobuf/wkt";
import {
  Role,
  ToolStatus,
  ToolStatusSchema,
  type Message as WireMessage,
  type MessageSchema,
  type Part as WirePart,
  type PartSchema,
  type ToolPart as WireToolPart,
} from "./gen/runekeep/v1/common_pb.js";
import { enumNumber, enumWord, toDuration, toTimestamp, type Word } from "./plain.js";

/** Plain text, at most 256 KiB. */
export interface TextPart {
  type: "text";
  text: string;
}

/** An image by https or data URL; `caption` says what it shows, if known. */
export interface ImagePart {
  type: "image";
  url: string;
  detail?: "auto" | "low" | "high";
  caption?: string;
}

/** A context that the agent saw: its URI and abstract. */
export interface ContextPart {
  type: "context";
  uri: string;
  abstract?: string;
}

/** A tool call and its result. Only the status `completed` counts as a success. */
export interface ToolPart {
  type: "tool";
  toolName: string;
  toolId?: string;
  /** The skill that the call ran, if any. */
  skillName?: string;
  input?: JsonObject;
  output?: string;
  /** `pending` if it is not given. */
  status?: Word<typeof ToolStatus>;
  durationMs?: number | undefined;
  /** Prompt and completion tokens of the call. */
  totalTokens?: number;
  /** Set by the server if the message has only the beginning of a long output: the characters of the whole output. */
  storedOutputLength?: number;
}

export type Part = TextPart | ImagePart | ContextPart | ToolPart;

export type RoleName = "user" | "assistant";

/** A message to add. A string is a text. */
export interface MessageInput {
  role: RoleName;
  content: string | Part[];
  /** Chosen by the server if it is not given. A message whose id the session has is not added again. */
  id?: string;
  /** The other party, when the message is not the user's own. */
  peerId?: string;
  turnId?: string;
  /** When it was said; the time of arrival if it is not given. */
  createTime?: Date;
  /** Name shown for the speaker. */
  speaker?: string;
}

/** A message of a session. */
export interface Message {
  role: RoleName;
  content: Part[];
  id: string;
  /** Position in the session, from 1. */
  sequence: number;
  createTime: Date | undefined;
  peerId: string;
  turnId: string;
  speaker: string;
  /** Whether its longest parts are cut, because it is larger than an answer may be. */
  shortened: boolean;
}

/** Throws TypeError for an unknown role or part. */
export function messageToWire(message: MessageInput): MessageInitShape<typeof MessageSchema> {
  const { role, content, id = "", peerId = "", turnId = "", createTime, speaker = "" } = message;
  if (role !== "user" && role !== "assistant") {
    throw new TypeError(`the role of a message is user or assistant, not ${JSON.stringify(role)}`);
  }
  const parts: Part[] = typeof content === "string" ? [{ type: "text", text: content }] : content;
  return {
    id,
    role: role === "assistant" ? Role.ASSISTANT : Role.USER,
    parts: parts.map(partToWire),
    peerId,
    turnId,
    createTime: toTimestamp(createTime),
    speaker,
  };
}

export function messageFromWire(message: WireMessage): Message {
  return {
    role: message.role === Role.ASSISTANT ? "assistant" : "user",
    content: message.parts.map(partFromWire),
    id: message.id,
    sequence: Number(message.sequence),
    createTime: message.createTime && timestampDate(message.createTime),
    peerId: message.peerId,
    turnId: message.turnId,
    speaker: message.speaker,
    shortened: message.shortened,
  };
}

function partToWire(part: Part): MessageInitShape<typeof PartSchema> {
  switch (part.type) {
    case "text":
      return { part: { case: "text", value: { text: part.text } } };
    case "image": {
      const { url, detail = "auto", caption = "" } = part;
      return { part: { case: "image", value: { url, detail, caption } } };
    }
    case "context":
      return { part: { case: "context", value: { uri: part.uri, abstract: part.abstract ?? "" } } };
    case "tool": {
      const { toolName, toolId = "", skillName = "", input, output = "", status = "pending", totalTokens = 0 } = part;
      const value = {
        ...{ toolName, toolId, skillName, output },
        ...(input && Object.keys(input).length ? { input } : {}),
        status: enumNumber(ToolStatusSchema, status),
        duration: toDuration(part.durationMs),
        totalTokens: BigInt(totalTokens),
      };
      return { part: { case: "tool", value } };
    }
    default: {
      const { type } = part as { type: unknown };
      throw new TypeError(`the type of a part is text, image, context or tool, not ${JSON.stringify(type)}`);
    }
  }
}

function partFromWire({ part }: WirePart): Part {
  switch (part.case) {
    case "text":
      return { type: "text", text: part.value.text };
    case "image": {
      const { url, detail, caption } = part.value;
      return { type: "image", url, detail: (detail || "auto") as "auto" | "low" | "high", caption };
    }
    case "context":
      return { type: "context", uri: part.value.uri, abstract: part.value.abstract };
    case "tool":
      return toolFromWire(part.value);
    default:
      throw new TypeError("the server sent a message part that this client does not know; upgrade the client");
  }
}

function toolFromWire(tool: WireToolPart): ToolPart {
  return {
    type: "tool",
    toolId: tool.toolId,
    toolName: tool.toolName,
    skillName: tool.skillName,
    input: tool.input ?? {},
    output: tool.output,
    status: (enumWord(ToolStatusSchema, tool.status) ?? "pending") as Word<typeof ToolStatus>,
    durationMs: tool.duration && durationMs(tool.duration),
    totalTokens: Number(tool.totalTokens),
    storedOutputLength: Number(tool.storedOutputLength),
  };
}
