// Memory for the Vercel AI SDK: a middleware for `wrapLanguageModel`.
import type { LanguageModelMiddleware } from "ai";
import type { BaseClient } from "./client.js";
import { AlreadyExistsError, InvalidArgumentError, RunekeepError } from "./errors.js";
import { stripMemory, wrapMemory } from "./memory-block.js";
import type { MessageInput, RoleName } from "./messages.js";
import type { Session } from "./session.js";

const RECALL_MS = 2_000;
const APPEND_MS = 20_000;
/** After which a session commits by itself: nobody says that a conversation has ended. */
const IDLE_MS = 1_800_000;
const PENDING_TOKENS = 20_000;
const MAX_QUERY_CHARS = 2_000;
const MAX_TEXT_CHARS = 60_000;
/** Of an answer that is kept; a longer one is not appended. */
const MAX_ANSWER_CHARS = 4_000_000;
const ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

type Params = Parameters<NonNullable<LanguageModelMiddleware["transformParams"]>>[0]["params"];
type Prompt = Params["prompt"];
type StreamResult = Awaited<ReturnType<NonNullable<LanguageModelMiddleware["wrapStream"]>>>;
type StreamPart = StreamResult["stream"] extends ReadableStream<infer P> ? P : never;

export interface MemoryOptions {
  /** A client for the user whose memory it is. */
  client: BaseClient;
  /** The conversation, to whose session what is said is appended. Without it nothing is appended. */
  session?: string;
  /** Tokens of what is relevant to the user's last words; 1000 if it is not given. */
  tokenBudget?: number;
  /** Tokens of profile, preferences and plans; 500 if it is not given. */
  stableBudget?: number;
  /**
   * Gets the append, to finish after the response, as `waitUntil` of `@vercel/functions` and `after` of Next.js do. If it
   * is not given, the end of the response waits for the append.
   */
  waitUntil?: (append: Promise<void>) => void;
  /** Told what failed, without what was said; `console.warn` if it is not given. */
  warn?: (message: string) => void;
}

/**
 * Returns a middleware that adds what is known of the user to the prompt, and appends what user and assistant say to a
 * session, which commits by itself after half an hour without a message. While Runekeep is away, the model is called
 * without memory.
 *
 * For example `wrapLanguageModel({ model, middleware: memoryMiddleware({ client, session: chatId }) })`.
 */
export function memoryMiddleware(options: MemoryOptions): LanguageModelMiddleware {
  const memory = new Memory(options);
  return {
    transformParams: async ({ params }) => ({ ...params, prompt: await memory.add(params.prompt, params.abortSignal) }),

    wrapGenerate: async ({ doGenerate, params }) => {
      const result = await doGenerate();
      const texts = result.content.map((part) => (part.type === "text" ? part.text : ""));
      await memory.append(params, texts.join(""));
      return result;
    },

    wrapStream: async ({ doStream, params }) => {
      const { stream, ...rest } = await doStream();
      let answer = "";
      let isComplete = false;
      const reader = new TransformStream<StreamPart, StreamPart>({
        transform(part, controller) {
          if (part.type === "text-delta" && answer.length <= MAX_ANSWER_CHARS) answer += part.delta;
          if (part.type === "finish") isComplete = true;
          controller.enqueue(part);
        },
        async flush() {
          if (isComplete) await memory.append(params, answer);
        },
      });
      return { stream: stream.pipeThrough(reader), ...rest };
    },
  };
}

class Memory {
  readonly #options: MemoryOptions;

  constructor(options: MemoryOptions) {
    this.#options = options;
  }

  /** The prompt with what is known; the same prompt if nothing is, or memory is away. */
  async add(prompt: Prompt, signal: AbortSignal | undefined): Promise<Prompt> {
    const place = lastUserMessage(prompt);
    if (place < 0) return prompt;
    const { client, tokenBudget = 1000, stableBudget = 500 } = this.#options;
    try {
      const query = wellFormed(textOf(prompt[place]!).slice(0, MAX_QUERY_CHARS));
      const { stableText, text } = await client.recall(query, {
        parts: ["stable", "query"],
        ...{ tokenBudget, stableBudget, signal },
        timeoutMs: RECALL_MS,
      });
      return withMemory(prompt, place, stableText, text);
    } catch (failed) {
      this.#warn("no memory", failed);
      return prompt;
    }
  }

  /** Appends the user's last words and the answer. Throws nothing. */
  async append(params: Params, answer: string): Promise<void> {
    if (this.#options.session === undefined) return;
    const appending = this.#append(this.#options.session, params, answer).catch((failed: unknown) =>
      this.#warn("a turn was not appended", failed),
    );
    if (this.#options.waitUntil) this.#options.waitUntil(appending);
    else await appending;
  }

  async #append(given: string, params: Params, answer: string): Promise<void> {
    const { prompt, responseFormat } = params;
    // An object that was asked for is no text that somebody said.
    const isText = responseFormat?.type !== "json" && answer.length <= MAX_ANSWER_CHARS;
    const messages = await messagesOf(given, prompt, isText ? answer : "");
    if (!messages.length) return;
    const { client } = this.#options;
    const timeoutMs = APPEND_MS;
    const sessionId = ID.test(given) ? given : `session_${await hashed(given)}`;
    const session = await openSession(client, sessionId, timeoutMs);
    try {
      await session.addMessages(messages, { timeoutMs });
    } catch (failed) {
      if (!(failed instanceof AlreadyExistsError || failed instanceof InvalidArgumentError)) throw failed;
      for (const message of messages) await this.#addOne(session, message, timeoutMs);
    }
  }

  async #addOne(session: Session, message: MessageInput, timeoutMs: number): Promise<void> {
    try {
      await session.addMessages([message], { timeoutMs });
    } catch (failed) {
      // The session has the message already.
      if (failed instanceof AlreadyExistsError) return;
      if (!(failed instanceof InvalidArgumentError)) throw failed;
      this.#warn("a message was not appended", failed);
    }
  }

  #warn(what: string, failed: unknown): void {
    const { warn = console.warn } = this.#options;
    // The message of an error may quote what was said.
    const why = failed instanceof RunekeepError ? `${failed.code} ${failed.reason}` : (failed as Error)?.name;
    warn(`runekeep: ${what}: ${why}`.trim());
  }
}

async function openSession(client: BaseClient, sessionId: string, timeoutMs: number): Promise<Session> {
  try {
    const autoCommit = { idleMs: IDLE_MS, pendingTokens: PENDING_TOKENS };
    return await client.createSession({ sessionId, autoCommit, timeoutMs });
  } catch (failed) {
    if (!(failed instanceof AlreadyExistsError)) throw failed;
    return await client.getSession(sessionId, { timeoutMs });
  }
}

// The stable part goes behind the instructions, so that the provider's cache of prompts stays valid; what is relevant
// goes before the user's last words.
function withMemory(prompt: Prompt, place: number, stable: string, relevant: string): Prompt {
  const changed = [...prompt];
  const message = changed[place]!;
  if (relevant && message.role === "user") {
    const first = Math.max(message.content.findIndex((part) => part.type === "text"), 0);
    const block = { type: "text" as const, text: wrapMemory(relevant) };
    changed[place] = { ...message, content: [...message.content.slice(0, first), block, ...message.content.slice(first)] };
  }
  if (stable) {
    const others = changed.findIndex(({ role }) => role !== "system");
    const system = changed[others - 1];
    // Not every model takes a second system message.
    if (system?.role === "system") {
      changed[others - 1] = { ...system, content: `${system.content}\n\n${wrapMemory(stable)}` };
    } else {
      changed.unshift({ role: "system", content: wrapMemory(stable) });
    }
  }
  return changed;
}

function lastUserMessage(prompt: Prompt): number {
  return prompt.findLastIndex((message) => message.role === "user" && textOf(message) !== "");
}

/** What user or assistant said in a message, without memory. Tool calls and their results are left out. */
function textOf({ role, content }: Prompt[number]): string {
  if (role !== "user" && role !== "assistant") return "";
  const texts = content.flatMap((part) => (part.type === "text" ? [stripMemory(part.text)] : []));
  return texts.filter((text) => text.trim()).join("\n");
}

/**
 * The user's last words and the answer. Their ids follow from the texts of the conversation before, so that a request
 * that is repeated, or continued after a tool call, adds nothing twice.
 */
async function messagesOf(session: string, prompt: Prompt, answer: string): Promise<MessageInput[]> {
  const place = lastUserMessage(prompt);
  if (place < 0) return [];
  const said: [RoleName, string, Prompt][] = [
    ["user", textOf(prompt[place]!), prompt.slice(0, place + 1)],
    ["assistant", stripMemory(answer), prompt],
  ];
  const messages = said.map(async ([role, text, conversation]) => {
    const texts = conversation.map((one) => [one.role, textOf(one).split(/\s+/).join(" ").trim()]);
    const key = JSON.stringify([session, role, texts.filter(([, one]) => one)]);
    const id = `msg_${await hashed(key)}`;
    return { role, content: wellFormed(text.slice(0, MAX_TEXT_CHARS)), id };
  });
  return (await Promise.all(messages)).filter(({ content }) => content.trim());
}

async function hashed(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest).slice(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Half a surrogate pair cannot be sent.
function wellFormed(text: string): string {
  return new TextDecoder().decode(new TextEncoder().encode(text));
}
