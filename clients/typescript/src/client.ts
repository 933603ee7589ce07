// The client: the calls of one user, over any transport.
import type { DescService } from "@bufbuild/protobuf";
import { createClient, type Client as ServiceClient, type Transport } from "@connectrpc/connect";
import { Connection, type Identity } from "./connection.js";
import { AbortedError, NotFoundError } from "./errors.js";
import {
  FindMemoriesResponseSchema,
  MemorySchema,
  MemoryViewSchema,
  RecallResponseSchema,
  type MemoryView,
} from "./gen/runekeep/v1/memory_service_pb.js";
import { SessionSchema } from "./gen/runekeep/v1/session_service_pb.js";
import { TaskStateSchema, type TaskState } from "./gen/runekeep/v1/task_service_pb.js";
import {
  autoCommitToWire,
  callOptions,
  findRequest,
  policyToWire,
  recallRequest,
  type AutoCommit,
  type CallOptions,
  type FindOptions,
  type MemoryPolicy,
  type MutationOptions,
  type RecallOptions,
} from "./options.js";
import { pages } from "./pages.js";
import { enumNumber, plain, toAsOf, type Word } from "./plain.js";
import { newRequestId } from "./request-id.js";
import {
  present,
  searchResultFromWire,
  taskFromWire,
  type Commit,
  type Memory,
  type RecallResult,
  type SearchResults,
  type SessionInfo,
  type Task,
  type TaskUpdate,
} from "./results.js";
import { servicesOf, Session, type Services } from "./session.js";
import { waitTask, watchTask } from "./tasks.js";

const PAGE = 200;

export interface NewSession {
  /** Chosen by the server if it is not given. */
  sessionId?: string;
  /** Shown to people. */
  title?: string;
  /** Holds for commits that bring none of their own. */
  memoryPolicy?: MemoryPolicy;
  /** When it commits by itself; never if it is not given. */
  autoCommit?: AutoCommit;
}

/**
 * Calls one server as one user. Every call may throw a RunekeepError; `reason` says why.
 *
 * Every mutation takes a `requestId`. To repeat a call whose result is unknown, give the same one.
 */
export class BaseClient {
  readonly #connection: Connection;
  readonly #services: Services;

  constructor(transport: Transport, identity: Identity) {
    this.#connection = new Connection(transport, identity);
    this.#services = servicesOf(this.#connection);
  }

  /**
   * A client of a service of the contract, for calls that have no method here, such as those of `HistoryService` from
   * `runekeep/v1/history_service`. It has the same identity, deadlines, request ids, repeats and errors.
   */
  service<S extends DescService>(service: S): ServiceClient<S> {
    return createClient(service, this.#connection);
  }

  /** A session. Its first use creates it on the server if it does not exist. Without an id it gets a new one. */
  session(sessionId = `session_${newRequestId()}`): Session {
    return new Session(this.#services, sessionId, false);
  }

  /** A session by id or URI. Throws NotFoundError if it does not exist, unless `autoCreate`. */
  async getSession(sessionId: string, options: { autoCreate?: boolean } & CallOptions = {}): Promise<Session> {
    const { autoCreate = false } = options;
    const response = await this.#services.sessions.getSession({ session: sessionId, autoCreate }, callOptions(options));
    return new Session(this.#services, present(response.session).sessionId, true);
  }

  /** Creates a session. Throws AlreadyExistsError if the id is taken. */
  async createSession(options: NewSession & MutationOptions = {}): Promise<Session> {
    const { sessionId = "", title = "", memoryPolicy, autoCommit, requestId = "" } = options;
    const request = {
      ...{ sessionId, title, requestId },
      memoryPolicy: policyToWire(memoryPolicy),
      autoCommit: autoCommitToWire(autoCommit),
    };
    const response = await this.#services.sessions.createSession(request, callOptions(options));
    return new Session(this.#services, present(response.session).sessionId, true);
  }

  /** Lists the user's sessions, latest activity first. */
  async *listSessions(options: CallOptions = {}): AsyncGenerator<SessionInfo> {
    const { sessions } = this.#services;
    const call = callOptions(options);
    for await (const page of pages((pageToken) => sessions.listSessions({ pageSize: PAGE, pageToken }, call))) {
      yield* page.sessions.map((session) => plain(SessionSchema, session));
    }
  }

  /** Deletes a session with its messages and archives. Memories made from it stay. Returns how many commits it cancelled. */
  async deleteSession(sessionId: string, options: MutationOptions = {}): Promise<number> {
    const request = { session: sessionId, requestId: options.requestId ?? "" };
    const response = await this.#services.sessions.deleteSession(request, callOptions(options));
    return Number(response.cancelledTasks);
  }

  /**
   * Remembers what a text says: adds it to a session for such texts, and commits it. `waitTask` with the `taskId` waits
   * until it is a memory.
   *
   * For example `await client.remember("I live in Lisbon")`.
   */
  async remember(text: string, options: { sessionId?: string } & MutationOptions = {}): Promise<Commit> {
    const { sessionId = "remembered", requestId = newRequestId(), ...call } = options;
    const session = this.session(sessionId);
    const added = await session.addMessage("user", text, { ...call, requestId });
    const commit = await session.commit({ ...call, requestId });
    if (commit.status === "skipped") {
      // The commit of a concurrent call took the message.
      for await (const { messages, taskId, uri } of session.archives(call)) {
        if (messages && messages.endSequence < added.sequence) break;
        if (messages && messages.startSequence <= added.sequence) {
          return { status: "accepted", taskId, archiveUri: uri, archived: true };
        }
      }
    }
    return commit;
  }

  /** Searches memories and archived conversation, best first. */
  async find(query: string, options: FindOptions = {}): Promise<SearchResults> {
    const response = await this.#services.memories.findMemories(findRequest(query, options), callOptions(options));
    const { results: _, ...fields } = plain(FindMemoriesResponseSchema, response);
    return { ...fields, results: response.results.map(searchResultFromWire) };
  }

  /**
   * The memories and messages most relevant to `query`, as `text` for a prompt within a token budget.
   *
   * With a `session`, an id or URI, the server leaves out what the session got before; with an empty query too, the last
   * three live messages of the user are the query.
   */
  async recall(query = "", options: { session?: string } & RecallOptions = {}): Promise<RecallResult> {
    const { session = "", ...recall } = options;
    const request = recallRequest(query, session, recall);
    return plain(RecallResponseSchema, await this.#services.memories.recall(request, callOptions(options)));
  }

  /** A memory with its fields and the messages it came from. Throws NotFoundError if there is none. */
  async getMemory(
    uri: string,
    options: { version?: number; view?: Word<typeof MemoryView>; asOf?: number | Date } & CallOptions = {},
  ): Promise<Memory> {
    const { version = 0, view = "full", asOf } = options;
    const request = {
      uri,
      version: BigInt(version),
      view: enumNumber(MemoryViewSchema, view),
      asOf: toAsOf(asOf),
    };
    const response = await this.#services.memories.getMemory(request, callOptions(options));
    return plain(MemorySchema, present(response.memory));
  }

  /**
   * Deletes one memory as it is now, whichever version that is. Returns the version that records the deletion. Its
   * versions stay readable. Throws NotFoundError if there is no such memory.
   */
  async forget(uri: string, options: MutationOptions = {}): Promise<Memory> {
    const { memories } = this.#services;
    const call = callOptions(options);
    const { requestId = "" } = options;
    const deleteAt = async (baseVersion: bigint): Promise<Memory> => {
      const changes = [{ change: { case: "delete" as const, value: { uri } }, baseVersion }];
      const response = await memories.writeMemories({ changes, requestId }, call);
      return plain(MemorySchema, present(response.memories[0]));
    };
    try {
      const current = await memories.getMemory({ uri, view: enumNumber(MemoryViewSchema, "abstract") }, call);
      return await deleteAt(present(current.memory).version);
    } catch (missing) {
      if (!(missing instanceof NotFoundError) || !requestId) throw missing;
      // The server has stored the answer if the call with this request id deleted the memory.
      const page = await memories.listMemoryVersions({ uri, pageSize: 1 }, call);
      try {
        return await deleteAt(present(page.memories[0]).version - 1n);
      } catch (failed) {
        throw failed instanceof AbortedError ? missing : failed;
      }
    }
  }

  /** A task, for example of a commit: its `state`, and once it has ended its `result`. */
  async getTask(taskId: string, options: CallOptions = {}): Promise<Task> {
    return taskFromWire((await this.#services.tasks.getTask({ taskId }, callOptions(options))).task);
  }

  /** Lists the user's tasks, newest first: of one session, or in some states, if given. */
  async *listTasks(
    options: { session?: string; states?: Word<typeof TaskState>[] } & CallOptions = {},
  ): AsyncGenerator<Task> {
    const { session = "", states = [] } = options;
    const request = { session, states: states.map((state) => enumNumber(TaskStateSchema, state)), pageSize: PAGE };
    const { tasks } = this.#services;
    const call = callOptions(options);
    for await (const page of pages((pageToken) => tasks.listTasks({ ...request, pageToken }, call))) {
      yield* page.tasks.map(taskFromWire);
    }
  }

  /**
   * Follows a task to its end. Yields a snapshot, each event after `afterSequence` once and in order, and the ended task.
   * If the stream breaks, it resumes after the last event.
   */
  watchTask(
    taskId: string,
    { afterSequence = 0, signal }: { afterSequence?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<TaskUpdate> {
    return watchTask(this.#services.tasks, taskId, afterSequence, signal);
  }

  /**
   * Returns the task once it has ended, with any state, and a search finds the memories that it wrote.
   *
   * Throws DeadlineExceededError if it has not ended after `timeoutMs`. The wait for the search ends ten seconds after
   * the task, or at `timeoutMs`: `pendingMemories` says what a search misses then.
   */
  async waitTask(taskId: string, { timeoutMs, signal }: CallOptions = {}): Promise<Task> {
    return await waitTask(this.#services.tasks, taskId, timeoutMs, signal);
  }

  /** Cancels an open task. Its result is never applied. Throws FailedPreconditionError if it has ended. */
  async cancelTask(taskId: string, options: { reason?: string } & MutationOptions = {}): Promise<Task> {
    const { reason = "", requestId = "" } = options;
    return taskFromWire((await this.#services.tasks.cancelTask({ taskId, reason, requestId }, callOptions(options))).task);
  }

  /** Queues a failed or cancelled task again. Throws FailedPreconditionError for others. */
  async retryTask(taskId: string, options: MutationOptions = {}): Promise<Task> {
    const { requestId = "" } = options;
    return taskFromWire((await this.#services.tasks.retryTask({ taskId, requestId }, callOptions(options))).task);
  }
}
