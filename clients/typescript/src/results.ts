// What calls return: plain objects that follow the contract. See PlainFields.
import type { Summary as WireSummary } from "./gen/runekeep/v1/common_pb.js";
import { FoundItemSchema, MemorySchema, PassageSchema } from "./gen/runekeep/v1/memory_service_pb.js";
import type * as memory from "./gen/runekeep/v1/memory_service_pb.js";
import type * as session from "./gen/runekeep/v1/session_service_pb.js";
import {
  TaskEventSchema,
  TaskProgressSchema,
  TaskSchema,
  TaskStateSchema,
} from "./gen/runekeep/v1/task_service_pb.js";
import type * as task from "./gen/runekeep/v1/task_service_pb.js";
import type { Message } from "./messages.js";
import { enumWord, failure, plain, type Failure, type PlainFields } from "./plain.js";

export interface Summary extends PlainFields<WireSummary> {}

/** A conversation of one user, as the server has it. */
export interface SessionInfo extends PlainFields<session.Session> {}

/** The messages of one commit. */
export interface Archive extends PlainFields<session.Archive> {}

/** `skipped` if there was nothing to archive: then the names are empty. */
export interface Commit extends PlainFields<session.CommitSessionResponse> {}

/** `autoCommit` is the commit that these messages made, if they made one. */
export interface AddedMessages extends PlainFields<session.AddMessagesResponse> {}

export interface RecordedUsage extends PlainFields<session.RecordUsageResponse> {}

/**
 * What a model needs to continue a conversation, oldest first: the `overview` of extracted archives, then `pending`
 * messages, archived but not extracted, then `live` messages, not archived.
 */
export interface SessionContext {
  overview: string;
  /** The archive of the overview. */
  overviewUri: string;
  pending: Message[];
  live: Message[];
  /** Of overview and messages. */
  tokens: number;
  /** Messages that the budget left out. */
  omittedMessages: number;
  /** Whether the budget left the overview out. */
  overviewOmitted: boolean;
}

/**
 * A commit, or other work on memories. `result` is set once a commit has ended, `error` once a task has failed or been
 * cancelled, or after an attempt that failed.
 */
export interface Task extends PlainFields<task.Task> {}

export interface TaskProgress extends PlainFields<task.TaskProgress> {}

interface TaskEventFields {
  /** Of events, from 1. */
  sequence: number;
  eventTime: Date | undefined;
  attempt: number;
}

/** What `watchTask` yields: a snapshot, events, and the task as it ended. */
export type TaskUpdate =
  | { kind: "snapshot"; task: Task }
  | ({ kind: "state"; state: Task["state"] } & TaskEventFields)
  | ({ kind: "progress"; progress: TaskProgress } & TaskEventFields)
  | ({ kind: "attempt_failed"; error: Failure } & TaskEventFields)
  | { kind: "ended"; task: Task };

export interface Memory extends PlainFields<memory.Memory> {}

export interface Passage extends PlainFields<memory.Passage> {}

interface FoundFields extends Omit<PlainFields<memory.FoundItem>, "view"> {}

export interface FoundMemory extends Memory, FoundFields {
  kind: "memory";
  /** How much of it is here. */
  view: PlainFields<memory.FoundItem>["view"];
}

/** A message of an archive. */
export interface FoundPassage extends Passage, FoundFields {
  kind: "passage";
}

export type SearchResult = FoundMemory | FoundPassage;

export interface SearchResults extends Omit<PlainFields<memory.FindMemoriesResponse>, "results"> {
  /** The best one first. */
  results: SearchResult[];
}

/** `text` is ready for a prompt; `entries` are the memories and messages in it. */
export interface RecallResult extends PlainFields<memory.RecallResponse> {}

export function taskFromWire(wire: task.Task | undefined): Task {
  return plain(TaskSchema, present(wire));
}

/** Undefined for a keep-alive. */
export function taskUpdateFromWire({ update }: task.WatchTaskResponse): TaskUpdate | undefined {
  switch (update.case) {
    case "snapshot":
    case "ended":
      return { kind: update.case, task: taskFromWire(update.value) };
    case "event":
      return taskEvent(update.value);
    default:
      return undefined;
  }
}

function taskEvent(wire: task.TaskEvent): TaskUpdate {
  const { event } = wire;
  const { sequence, attempt, eventTime } = plain(TaskEventSchema, wire);
  const shared = { sequence, attempt, eventTime };
  switch (event.case) {
    case "stateChange":
      return { kind: "state", ...shared, state: enumWord(TaskStateSchema, event.value) as Task["state"] };
    case "progress":
      return { kind: "progress", ...shared, progress: plain(TaskProgressSchema, event.value) };
    case "attemptFailed":
      return { kind: "attempt_failed", ...shared, error: failure(event.value) };
    default:
      throw new TypeError("the server sent a task event that this client does not know; upgrade the client");
  }
}

export function searchResultFromWire(wire: memory.FoundItem): SearchResult {
  const { item } = wire;
  const { view, ...fields } = plain(FoundItemSchema, wire);
  switch (item.case) {
    case "memory":
      return { kind: "memory", ...plain(MemorySchema, item.value), ...fields, view };
    case "passage":
      return { kind: "passage", ...plain(PassageSchema, item.value), ...fields };
    default:
      throw new TypeError("the server sent a search result that this client does not know; upgrade the client");
  }
}

/** A message that the contract says is there. */
export function present<T>(message: T | undefined): T {
  if (message === undefined) throw new TypeError("the server's answer is incomplete");
  return message;
}
