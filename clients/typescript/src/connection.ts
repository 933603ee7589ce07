// Every call of a client: identity, deadlines, request ids, repeats, and errors as exceptions.
import {
  clone,
  create,
  getOption,
  isMessage,
  type DescMessage,
  type DescMethod,
  type DescMethodStreaming,
  type DescMethodUnary,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Idempotency } from "@bufbuild/protobuf/wkt";
import type { ContextValues, StreamResponse, Transport, UnaryResponse } from "@connectrpc/connect";
import { errorOf, UnavailableError } from "./errors.js";
import { rules } from "./gen/runekeep/v1/method_options_pb.js";
import { newRequestId } from "./request-id.js";

const ATTEMPTS = 6;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;

/** Who calls, and how long a call may take. */
export interface Identity {
  /** The account whose data are used; the server believes it in development mode only. */
  account?: string | undefined;
  /** The user whose data are used; with a key of an account, or in development mode. */
  user?: string | undefined;
  /** The caller's key. */
  apiKey?: string | undefined;
  /** Replaces the deadlines of the methods, in milliseconds. All attempts of a call share it. */
  timeoutMs?: number | undefined;
}

/**
 * A transport of Connect over another one. It is used by the client, and by clients of services that `service` returns.
 *
 * While the server is away it repeats a call, with the same request id, unless the contract says that the method must
 * not be repeated.
 */
export class Connection implements Transport {
  readonly #transport: Transport;
  readonly #headers: [string, string][];
  readonly #timeoutMs: number | undefined;

  constructor(transport: Transport, { account, user, apiKey, timeoutMs }: Identity) {
    this.#transport = transport;
    this.#timeoutMs = timeoutMs;
    this.#headers = [];
    if (apiKey) this.#headers.push(["authorization", `Bearer ${apiKey}`]);
    if (account) this.#headers.push(["x-runekeep-account", account]);
    if (user) this.#headers.push(["x-runekeep-user", user]);
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit | undefined,
    input: MessageInitShape<I>,
    contextValues?: ContextValues,
  ): Promise<UnaryResponse<I, O>> {
    const request = withRequestId(method.input, input);
    const end = performance.now() + (timeoutMs ?? this.#timeoutMs ?? deadlineMs(method) ?? Infinity);
    const attempts = method.idempotency === Idempotency.IDEMPOTENCY_UNKNOWN ? 1 : ATTEMPTS;
    for (let attempt = 1; ; attempt += 1) {
      try {
        // Whole milliseconds: the protocol takes no others.
        const left = end === Infinity ? undefined : Math.max(Math.ceil(end - performance.now()), 1);
        return await this.#transport.unary(method, signal, left, this.#add(header), request, contextValues);
      } catch (failed) {
        const error = errorOf(failed, signal);
        if (!(error instanceof UnavailableError && error.retryable) || attempt === attempts) throw error;
        const drawn = Math.random() * Math.min(FIRST_PAUSE_MS * 2 ** (attempt - 1), MAX_PAUSE_MS);
        const pause = Math.max(error.retryAfterMs ?? 0, drawn);
        if (performance.now() + pause >= end) throw error;
        await sleep(pause, signal);
      }
    }
  }

  async stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit | undefined,
    input: AsyncIterable<MessageInitShape<I>>,
    contextValues?: ContextValues,
  ): Promise<StreamResponse<I, O>> {
    const deadline = timeoutMs === undefined ? deadlineMs(method) : Math.ceil(timeoutMs);
    try {
      const headers = this.#add(header);
      const answer = await this.#transport.stream(method, signal, deadline, headers, input, contextValues);
      return { ...answer, message: withErrors(answer.message, signal) };
    } catch (failed) {
      throw errorOf(failed, signal);
    }
  }

  #add(header: HeadersInit | undefined): Headers {
    const headers = new Headers(header);
    for (const [name, value] of this.#headers) if (!headers.has(name)) headers.set(name, value);
    return headers;
  }
}

async function* withErrors<T>(messages: AsyncIterable<T>, signal: AbortSignal | undefined): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (failed) {
    throw errorOf(failed, signal);
  }
}

/** The deadline of the contract; undefined for a stream without one. */
function deadlineMs(method: DescMethod): number | undefined {
  const { deadline } = getOption(method, rules);
  return deadline && Number(deadline.seconds) * 1000 + deadline.nanos / 1e6;
}

/** The request with an id of its own, if it takes one and has none: a repeat that has the same id does nothing twice. */
function withRequestId<I extends DescMessage>(schema: I, input: MessageInitShape<I>): MessageInitShape<I> {
  if (!("requestId" in schema.field)) return input;
  const request = isMessage(input, schema) ? clone(schema, input) : create(schema, input);
  const named = request as { requestId?: string };
  named.requestId ||= newRequestId();
  return request as MessageInitShape<I>;
}

/** Waits. Throws the reason of the signal when it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A signal that is aborted when one of them is. */
export function anySignal(...signals: (AbortSignal | undefined)[]): AbortSignal | undefined {
  const given = signals.filter((one) => one !== undefined);
  return given.length > 1 ? AbortSignal.any(given) : given[0];
}
