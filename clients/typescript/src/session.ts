import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { createClient, type Client as ServiceClient } from "@connectrpc/connect";
import type { Connection } from "./connection.js";
import { MemoryService, RecallResponseSchema } from "./gen/runekeep/v1/memory_service_pb.js";
import {
  AddMessagesResponseSchema,
  ArchiveSchema,
  CommitSessionResponseSchema,
  MessageScope,
  RecordUsageResponseSchema,
  SessionSchema,
  SessionService,
} from "./gen/runekeep/v1/session_service_pb.js";
import { TaskService } from "./gen/runekeep/v1/task_service_pb.js";
import { messageFromWire, messageToWire, type Message, type MessageInput } from "./messages.js";
import {
  autoCommitToWire,
  callOptions,
  policyToWire,
  recallRequest,
  type AutoCommit,
  type CallOptions,
  type MemoryPolicy,
  type MutationOptions,
  type RecallOptions,
} from "./options.js";
import { pages } from "./pages.js";
import { plain } from "./plain.js";
import {
  present,
  type AddedMessages,
  type Archive,
  type Commit,
  type RecallResult,
  type RecordedUsage,
  type SessionContext,
  type SessionInfo,
  type Task,
} from "./results.js";
import { waitTask } from "./tasks.js";

const PAGE = 200;

/** Clients of the services that this package has methods for. */
export interface Services {
  sessions: ServiceClient<typeof SessionService>;
  memories: ServiceClient<typeof MemoryService>;
  tasks: ServiceClient<typeof TaskService>;
}

export function servicesOf(connection: Connection): Services {
  return {
    sessions: createClient(SessionService, connection),
    memories: createClient(MemoryService, connection),
    tasks: createClient(TaskService, connection),
  };
}

export interface CommitOptions extends MutationOptions {
  /** In place of the session's policy, for this commit alone. */
  memoryPolicy?: MemoryPolicy;
  /** So many of the newest messages stay live. */
  keepRecentCount?: number;
  /** From -100 to 100: waiting commits of the account with a higher one go first. */
  priority?: number;
}

/** A skill that the agent used. */
export interface SkillUsage {
  uri: string;
  input?: JsonValue;
  output?: string;
  success?: boolean;
}

export interface SessionChanges {
  title?: string;
  /** An empty object is the default policy. */
  memoryPolicy?: MemoryPolicy;
  /** An empty object means no automatic commits. */
  autoCommit?: AutoCommit;
}

/** A handle of a session. `session`, `getSession` and `createSession` of a client return it. */
export class Session {
  /** The last segment of the session's URI. */
  readonly sessionId: string;
  readonly #services: Services;
  #existing: Promise<unknown> | undefined;
  #lastTaskId = "";

  constructor(services: Services, sessionId: string, exists: boolean) {
    this.#services = services;
    this.sessionId = sessionId;
    this.#existing = exists ? Promise.resolve() : undefined;
  }

  /**
   * Appends a message, a text or parts. It is durable once the call returns.
   *
   * For example `await session.addMessage("user", "I live in Lisbon")`.
   */
  async addMessage(
    role: MessageInput["role"],
    content: MessageInput["content"],
    options: Omit<MessageInput, "role" | "content"> & MutationOptions = {},
  ): Promise<AddedMessages["messages"][number]> {
    const { signal, timeoutMs, requestId, ...message } = options;
    const added = await this.addMessages([{ ...message, role, content }], { signal, timeoutMs, requestId });
    return present(added.messages[0]);
  }

  /**
   * Appends up to 100 messages in order, all or none.
   *
   * For example `await session.addMessages([{ role: "user", content: "I live in Lisbon" }])`.
   */
  async addMessages(messages: MessageInput[], options: MutationOptions = {}): Promise<AddedMessages> {
    const request = {
      session: this.sessionId,
      messages: messages.map(messageToWire),
      requestId: options.requestId ?? "",
    };
    await this.#ensureExists(options);
    const response = await this.#services.sessions.addMessages(request, callOptions(options));
    this.#lastTaskId = response.autoCommit?.taskId || this.#lastTaskId;
    return plain(AddMessagesResponseSchema, response);
  }

  /** Records contexts, by URI, and a skill that the agent used since the last commit. */
  async used(contexts: string[], skill?: SkillUsage, options: MutationOptions = {}): Promise<RecordedUsage> {
    await this.#ensureExists(options);
    const request = {
      session: this.sessionId,
      contextUris: contexts,
      skills: skill ? [{ ...skill, input: skill.input === undefined ? undefined : fromJson(ValueSchema, skill.input) }] : [],
      requestId: options.requestId ?? "",
    };
    const response = await this.#services.sessions.recordUsage(request, callOptions(options));
    return plain(RecordUsageResponseSchema, response);
  }

  /** Archives the live messages and queues their extraction. */
  async commit(options: CommitOptions = {}): Promise<Commit> {
    const { memoryPolicy, keepRecentCount = 0, priority = 0, requestId = "" } = options;
    const request = {
      session: this.sessionId,
      memoryPolicy: policyToWire(memoryPolicy),
      keepRecentCount,
      priority,
      requestId,
    };
    await this.#ensureExists(options);
    const response = await this.#services.sessions.commitSession(request, callOptions(options));
    this.#lastTaskId = response.taskId || this.#lastTaskId;
    return plain(CommitSessionResponseSchema, response);
  }

  /**
   * Waits until the last commit that was made with this handle has ended and a search finds its memories, as `waitTask`.
   * Returns its task; undefined if it made none. Throws DeadlineExceededError after `timeoutMs`.
   */
  async wait({ timeoutMs, signal }: CallOptions = {}): Promise<Task | undefined> {
    return this.#lastTaskId ? await waitTask(this.#services.tasks, this.#lastTaskId, timeoutMs, signal) : undefined;
  }

  /**
   * Recalls for this session what is relevant to `query`, or if that is empty to the last three live messages of the
   * user. Leaves out what the session got before, until its live messages are archived or the memory changes.
   */
  async recall(query = "", options: RecallOptions = {}): Promise<RecallResult> {
    await this.#ensureExists(options);
    const request = recallRequest(query, this.sessionId, options);
    return plain(RecallResponseSchema, await this.#services.memories.recall(request, callOptions(options)));
  }

  /** What a model needs to continue this conversation, in at most `tokenBudget` tokens, 8000 if it is not given. */
  async context(options: { tokenBudget?: number } & CallOptions = {}): Promise<SessionContext> {
    await this.#ensureExists(options);
    const { tokenBudget = 0 } = options;
    const request = { session: this.sessionId, tokenBudget };
    const response = await this.#services.sessions.getSessionContext(request, callOptions(options));
    const { overview, overviewUri, overviewOmitted } = response;
    return {
      ...{ overview, overviewUri, overviewOmitted },
      pending: response.pendingMessages.map(messageFromWire),
      live: response.liveMessages.map(messageFromWire),
      tokens: Number(response.tokens),
      omittedMessages: Number(response.omittedMessages),
    };
  }

  /** Changes title, policy or automatic commits. Returns the session. */
  async update(changes: SessionChanges, options: MutationOptions = {}): Promise<SessionInfo> {
    const { title = "", memoryPolicy, autoCommit } = changes;
    const names = { title: "title", memoryPolicy: "memory_policy", autoCommit: "auto_commit" };
    const given = Object.entries(names).filter(([name]) => changes[name as keyof SessionChanges] !== undefined);
    const request = {
      session: this.sessionId,
      updateMask: { paths: given.map(([, path]) => path) },
      title,
      memoryPolicy: policyToWire(memoryPolicy),
      autoCommit: autoCommitToWire(autoCommit),
      requestId: options.requestId ?? "",
    };
    if (!given.length) throw new TypeError(`nothing to change: give any of ${Object.keys(names).join(", ")}`);
    await this.#ensureExists(options);
    const response = await this.#services.sessions.updateSession(request, callOptions(options));
    return plain(SessionSchema, present(response.session));
  }

  /** The session's state on the server. Throws NotFoundError before its first use. */
  async info(options: CallOptions = {}): Promise<SessionInfo> {
    const response = await this.#services.sessions.getSession({ session: this.sessionId }, callOptions(options));
    return plain(SessionSchema, present(response.session));
  }

  /** Lists its messages, oldest first: those that are not archived yet, or all of them. */
  async *messages(
    scope: "live" | "all" = "live",
    options: { startSequence?: number } & CallOptions = {},
  ): AsyncGenerator<Message> {
    const request = {
      session: this.sessionId,
      scope: scope === "all" ? MessageScope.ALL : MessageScope.LIVE,
      pageSize: PAGE,
      startSequence: BigInt(options.startSequence ?? 0),
    };
    const { sessions } = this.#services;
    const call = callOptions(options);
    for await (const page of pages((pageToken) => sessions.listMessages({ ...request, pageToken }, call))) {
      yield* page.messages.map(messageFromWire);
    }
  }

  /** Lists its commits, newest first. */
  async *archives(options: CallOptions = {}): AsyncGenerator<Archive> {
    const request = { session: this.sessionId, pageSize: PAGE };
    const { sessions } = this.#services;
    const call = callOptions(options);
    for await (const page of pages((pageToken) => sessions.listArchives({ ...request, pageToken }, call))) {
      yield* page.archives.map((archive) => plain(ArchiveSchema, archive));
    }
  }

  // Calls that run at the same time create the session once, so the signal of one must not end it for the others. After a
  // failure the next call tries again.
  async #ensureExists({ timeoutMs }: CallOptions): Promise<void> {
    const request = { session: this.sessionId, autoCreate: true };
    const creating = (this.#existing ??= this.#services.sessions.getSession(request, callOptions({ timeoutMs })));
    try {
      await creating;
    } catch (failed) {
      if (this.#existing === creating) this.#existing = undefined;
      throw failed;
    }
  }
}
