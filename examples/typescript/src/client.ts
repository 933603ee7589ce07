// Runekeep over Connect's gRPC transport, with the stubs of `make stubs-typescript`: identity, deadlines, repeats, errors
// with their details, and watches that outlive a broken stream.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError, createClient, type Client, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../gen/google/rpc/error_details_pb.js";
import { HistoryService } from "../gen/runekeep/v1/history_service_pb.js";
import { MemoryService } from "../gen/runekeep/v1/memory_service_pb.js";
import { SessionService } from "../gen/runekeep/v1/session_service_pb.js";
import { TaskService, type Task, type TaskEvent } from "../gen/runekeep/v1/task_service_pb.js";

const CALL_MS = 10_000;
const REPEATS = 5;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;
const AWAY_MS = 60_000;
// Three keep-alives of the server that did not come.
const SILENCE_MS = 45_000;
const LOOPBACK = /^(127(\.\d{1,3}){3}|localhost|\[::1\]):\d+$/;

export interface Options {
  account?: string | undefined;
  user?: string | undefined;
  apiKey?: string | undefined;
  caFile?: string | undefined;
  certFile?: string | undefined;
  keyFile?: string | undefined;
}

export interface Runekeep {
  sessions: Client<typeof SessionService>;
  memories: Client<typeof MemoryService>;
  history: Client<typeof HistoryService>;
  tasks: Client<typeof TaskService>;
}

export type TaskUpdate = { event: TaskEvent } | { resumed: bigint } | { ended: Task };

// Clients of the services, over one HTTP/2 connection. TLS when there is a certificate to trust or the address asks for it.
export function connect(address: string, options: Options = {}): Runekeep {
  const target = address.replace(/^https?:\/\//, "");
  const secure = address.startsWith("https://") || Boolean(options.caFile);
  if (options.apiKey && !secure && !LOOPBACK.test(target)) {
    throw new Error("a key is not sent in plain text: name the server's CA file, or an https:// address");
  }
  const read = (file: string | undefined) => (file ? readFileSync(file) : undefined);
  const transport = createGrpcTransport({
    baseUrl: `${secure ? "https" : "http"}://${target}`,
    nodeOptions: secure ? { ca: read(options.caFile), cert: read(options.certFile), key: read(options.keyFile) } : {},
    interceptors: [identify(options), repeat],
  });
  return {
    sessions: createClient(SessionService, transport),
    memories: createClient(MemoryService, transport),
    history: createClient(HistoryService, transport),
    tasks: createClient(TaskService, transport),
  };
}

function identify({ account, user, apiKey }: Options): Interceptor {
  return (next) => (request) => {
    if (apiKey) request.header.set("authorization", `Bearer ${apiKey}`);
    if (account) request.header.set("x-runekeep-account", account);
    if (user) request.header.set("x-runekeep-user", user);
    return next(request);
  };
}

// While the server is away or asks to come later, the very same request goes again. Every mutation carries a request_id,
// so it is done once.
const repeat: Interceptor = (next) => async (request) => {
  if (request.stream) return next(request);
  for (let attempt = 1, pause = FIRST_PAUSE_MS; ; attempt += 1, pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    try {
      return await next(request);
    } catch (failed) {
      const error = ConnectError.from(failed);
      const wait = Math.max(askedFor(error) ?? 0, pause * (0.5 + Math.random()));
      // A connection that broke under a call cancels it; nobody here asked for that.
      const broken = error.code === Code.Canceled && !request.signal.aborted;
      if (!(broken || passing(error)) || attempt > REPEATS) throw error;
      await sleep(wait, undefined, { signal: request.signal });
    }
  }
};

// Every unary call has a deadline, for all its repeats together.
export const deadline = { timeoutMs: CALL_MS };

function askedFor(error: ConnectError): number | undefined {
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return delay && Number(delay.seconds) * 1000 + delay.nanos / 1e6;
}

function passing(error: ConnectError): boolean {
  return error.code === Code.Unavailable || askedFor(error) !== undefined;
}

// The stable word of an error that a program acts on, and the fields that broke a rule.
export function explained(failed: unknown): { code: string; reason: string; fields: string[] } {
  const error = ConnectError.from(failed);
  return {
    code: Code[error.code],
    reason: error.findDetails(ErrorInfoSchema)[0]?.reason ?? "",
    fields: error.findDetails(BadRequestSchema).flatMap((bad) => bad.fieldViolations.map(({ field }) => field)),
  };
}

// Follows a task: each event once and in order, and the task as it ended last. A stream that breaks or falls silent is
// taken up again after the last event seen.
export async function* watch(runekeep: Runekeep, taskId: string, afterSequence = 0n): AsyncGenerator<TaskUpdate> {
  let last = afterSequence;
  let pause = FIRST_PAUSE_MS;
  let end = Date.now() + AWAY_MS;
  for (;;) {
    const silent = new AbortController();
    const silence = setTimeout(() => silent.abort(), SILENCE_MS);
    let ended: Task | undefined;
    try {
      const stream = runekeep.tasks.watchTask({ taskId, afterSequence: last }, { signal: silent.signal });
      for await (const { update } of stream) {
        silence.refresh();
        [pause, end] = [FIRST_PAUSE_MS, Date.now() + AWAY_MS];
        // The server closes the stream next.
        if (update.case === "ended") ended = update.value;
        if (update.case === "event" && update.value.sequence > last) {
          last = update.value.sequence;
          yield { event: update.value };
        }
      }
    } catch (failed) {
      const error = ConnectError.from(failed);
      const broken = passing(error) || error.code === Code.Canceled || error.code === Code.Aborted;
      if (!ended && (!broken || Date.now() > end)) throw error;
    } finally {
      clearTimeout(silence);
    }
    if (ended) {
      yield { ended };
      return;
    }
    await sleep(pause);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    yield { resumed: last };
  }
}
