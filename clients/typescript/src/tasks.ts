// Follows a task over broken streams.
import type { Client } from "@connectrpc/connect";
import { anySignal, sleep } from "./connection.js";
import { DeadlineExceededError, RunekeepError, UnavailableError } from "./errors.js";
import type { TaskService, WatchTaskResponse } from "./gen/runekeep/v1/task_service_pb.js";
import { taskFromWire, taskUpdateFromWire, type Task, type TaskUpdate } from "./results.js";

type Tasks = Client<typeof TaskService>;

/** Three missed keep-alives of the server: the stream is dead, whatever the socket says. */
const SILENCE_MS = 45_000;
/** How long the server may be away at a time. */
const GIVE_UP_MS = 60_000;
const CLOSE_MS = 1_000;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;
/** How long a wait goes on for the index after a commit has ended. */
const SEARCHABLE_MS = 10_000;

/**
 * Yields a snapshot, every event after `afterSequence` once and in order, and the task as it ended.
 *
 * If the stream breaks, it resumes after the last event. Throws UnavailableError if the server stays away for
 * GIVE_UP_MS, and every other error of the server at once.
 */
export async function* watchTask(
  tasks: Tasks,
  taskId: string,
  afterSequence: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<TaskUpdate> {
  let last = afterSequence;
  let isSnapshotSeen = false;
  let heard = performance.now();
  let pause = 0;
  for (;;) {
    const stream = new TimedStream(tasks, taskId, last, signal);
    let broken: UnavailableError;
    try {
      for (;;) {
        const response = await stream.next(SILENCE_MS);
        if (response === undefined) {
          broken = unavailable("the server ended the stream before the task");
          break;
        }
        [heard, pause] = [performance.now(), 0];
        const update = taskUpdateFromWire(response);
        if (update === undefined) continue;
        if (update.kind === "ended") {
          // Lets the server close the stream, so that it does not log a cancelled call.
          await stream.next(CLOSE_MS).catch(() => undefined);
          yield update;
          return;
        }
        if (update.kind === "snapshot") {
          if (isSnapshotSeen) continue;
          isSnapshotSeen = true;
        } else {
          if (update.sequence <= last) continue;
          last = update.sequence;
        }
        yield update;
      }
    } catch (failed) {
      if (!(failed instanceof UnavailableError && failed.retryable)) throw failed;
      broken = failed;
    } finally {
      stream.cancel();
    }
    pause = Math.min(Math.max(pause * 2, FIRST_PAUSE_MS, broken.retryAfterMs ?? 0), MAX_PAUSE_MS);
    if (performance.now() + pause - heard > GIVE_UP_MS) throw broken;
    await sleep(pause, signal);
  }
}

/** One stream of updates, whose silence has an end. */
class TimedStream {
  readonly #controller = new AbortController();
  readonly #responses: AsyncIterator<WatchTaskResponse>;
  readonly #signal: AbortSignal | undefined;

  constructor(tasks: Tasks, taskId: string, afterSequence: number, signal: AbortSignal | undefined) {
    this.#signal = signal;
    const stream = tasks.watchTask(
      { taskId, afterSequence: BigInt(afterSequence) },
      { signal: anySignal(this.#controller.signal, signal)! },
    );
    this.#responses = stream[Symbol.asyncIterator]();
  }

  /** The next response; undefined at the end of the stream. Throws UnavailableError if none comes in time. */
  async next(ms: number): Promise<WatchTaskResponse | undefined> {
    const timer = setTimeout(() => this.cancel(), ms);
    try {
      const { done, value } = await this.#responses.next();
      return done ? undefined : value;
    } catch (failed) {
      const isSilent = this.#controller.signal.aborted && !this.#signal?.aborted;
      throw isSilent ? unavailable("the server stopped sending") : failed;
    } finally {
      clearTimeout(timer);
    }
  }

  cancel(): void {
    this.#controller.abort();
  }
}

/**
 * The task once it has ended, with any state, and a search finds its memories.
 *
 * Throws DeadlineExceededError if it has not ended after `timeoutMs`. The wait for the search ends then too, or after
 * SEARCHABLE_MS, so that an index that is away holds nobody up.
 */
export async function waitTask(
  tasks: Tasks,
  taskId: string,
  timeoutMs: number | undefined,
  signal: AbortSignal | undefined,
): Promise<Task> {
  const end = performance.now() + (timeoutMs ?? Infinity);
  let task = await ended(tasks, taskId, timeoutMs, signal);
  const until = Math.min(end, performance.now() + SEARCHABLE_MS);
  for (let pause = 20; task.pendingMemories && performance.now() + pause < until; ) {
    await sleep(pause, signal);
    pause = Math.min(pause * 2, MAX_PAUSE_MS / 4);
    try {
      task = taskFromWire((await tasks.getTask({ taskId }, { signal: signal! })).task);
    } catch (failed) {
      // The end of the task is known, and that is what was asked for.
      if (failed instanceof UnavailableError) break;
      throw failed;
    }
  }
  return task;
}

async function ended(
  tasks: Tasks,
  taskId: string,
  timeoutMs: number | undefined,
  signal: AbortSignal | undefined,
): Promise<Task> {
  const timer = new AbortController();
  const timeout = timeoutMs === undefined ? undefined : setTimeout(() => timer.abort(), timeoutMs);
  try {
    for await (const update of watchTask(tasks, taskId, 0, anySignal(timer.signal, signal))) {
      if (update.kind === "ended") return update.task;
    }
    throw new RunekeepError("a watch ends with the task", { code: "INTERNAL" });
  } catch (failed) {
    if (!timer.signal.aborted || signal?.aborted) throw failed;
    const message = `task ${taskId} has not ended within ${timeoutMs} ms`;
    throw new DeadlineExceededError(message, { code: "DEADLINE_EXCEEDED" });
  } finally {
    clearTimeout(timeout);
  }
}

function unavailable(message: string): UnavailableError {
  return new UnavailableError(message, { code: "UNAVAILABLE" });
}
