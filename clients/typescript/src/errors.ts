// Errors of calls: one class for each gRPC status, with the details that the server sent.
import { Code, ConnectError } from "@connectrpc/connect";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  ResourceInfoSchema,
  RetryInfoSchema,
} from "./gen/google/rpc/error_details_pb.js";
import type { ErrorReason as WireReason } from "./gen/runekeep/v1/common_pb.js";

/** The stable reason of an error. Act on it; show the message to people. */
export type ErrorReason = Exclude<keyof typeof WireReason, "UNSPECIFIED">;

/** An invalid field of the request, and the rule it breaks. */
export interface FieldViolation {
  field: string;
  description: string;
}

interface Details {
  code: string;
  reason?: ErrorReason | "";
  violations?: FieldViolation[];
  retryAfterMs?: number | undefined;
  resource?: string;
  resourceType?: string;
  metadata?: Record<string, string>;
}

/** A call failed. The subclass says how. `cause` is the error of Connect. */
export class RunekeepError extends Error {
  override name = "RunekeepError";
  /** gRPC status, for example `NOT_FOUND`. */
  readonly code: string;
  /** For example `RESOURCE_NOT_FOUND`; empty if the server sent none. */
  readonly reason: ErrorReason | "";
  /** Invalid fields of the request. */
  readonly violations: FieldViolation[];
  /** Milliseconds after which to repeat the call; undefined if the server names none. */
  readonly retryAfterMs: number | undefined;
  /** Name of the resource that is missing or conflicts. */
  readonly resource: string;
  /** What the resource is, for example `session`. */
  readonly resourceType: string;
  /** Further details of the reason. */
  readonly metadata: Record<string, string>;

  constructor(message: string, details: Details, cause?: unknown) {
    super(message, { cause });
    this.code = details.code;
    this.reason = details.reason ?? "";
    this.violations = details.violations ?? [];
    this.retryAfterMs = details.retryAfterMs;
    this.resource = details.resource ?? "";
    this.resourceType = details.resourceType ?? "";
    this.metadata = details.metadata ?? {};
  }

  /** Path of the invalid field of the request, for example `messages[0].parts`; the first one of several. */
  get field(): string {
    return this.violations[0]?.field ?? "";
  }

  /** Whether the same call, a mutation with the same `requestId`, may succeed later. */
  get retryable(): boolean {
    return false;
  }
}

/** The request breaks a rule; `violations` names the fields. */
export class InvalidArgumentError extends RunekeepError {
  override name = "InvalidArgumentError";
}

/** The session, task or document does not exist. */
export class NotFoundError extends RunekeepError {
  override name = "NotFoundError";
}

/** The name is taken. */
export class AlreadyExistsError extends RunekeepError {
  override name = "AlreadyExistsError";
}

/** Another change came first. Read again, then repeat the call. */
export class AbortedError extends RunekeepError {
  override name = "AbortedError";
}

/** The state of the resource does not allow this call. */
export class FailedPreconditionError extends RunekeepError {
  override name = "FailedPreconditionError";
}

/** Too many open commits or calls, or too large a message; `retryAfterMs` says when to repeat the call. */
export class ResourceExhaustedError extends RunekeepError {
  override name = "ResourceExhaustedError";

  override get retryable(): boolean {
    return this.retryAfterMs !== undefined;
  }
}

/** The caller is unknown, or may not make this call. */
export class AccessDeniedError extends RunekeepError {
  override name = "AccessDeniedError";
}

/** The server cannot be reached, or a part it needs is away, after several attempts. */
export class UnavailableError extends RunekeepError {
  override name = "UnavailableError";

  override get retryable(): boolean {
    return true;
  }
}

/** No connection, because of certificates or because only one side uses TLS. The client does not try again. */
export class TlsError extends UnavailableError {
  override name = "TlsError";

  override get retryable(): boolean {
    return false;
  }
}

/** No response in time. A mutation may have happened: repeat it with the same `requestId`. */
export class DeadlineExceededError extends RunekeepError {
  override name = "DeadlineExceededError";

  override get retryable(): boolean {
    return true;
  }
}

const CLASSES: Partial<Record<Code, typeof RunekeepError>> = {
  [Code.InvalidArgument]: InvalidArgumentError,
  [Code.OutOfRange]: InvalidArgumentError,
  [Code.NotFound]: NotFoundError,
  [Code.AlreadyExists]: AlreadyExistsError,
  [Code.Aborted]: AbortedError,
  [Code.FailedPrecondition]: FailedPreconditionError,
  [Code.ResourceExhausted]: ResourceExhaustedError,
  [Code.Unauthenticated]: AccessDeniedError,
  [Code.PermissionDenied]: AccessDeniedError,
  [Code.Unavailable]: UnavailableError,
  // A server that is stopping answers new calls with it, and so does a connection that breaks. Calls that the caller
  // cancels fail with the reason of their signal.
  [Code.Canceled]: UnavailableError,
  [Code.DeadlineExceeded]: DeadlineExceededError,
};

// What Connect says of connections that break or cannot be made. The server itself sends none of them without a reason.
const BROKEN = new Set([Code.Aborted, Code.Internal, Code.Unknown]);
const TLS = /^(CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|ERR_TLS|ERR_SSL|HOSTNAME_MISMATCH)/;

/** The error of a failed call. If the caller cancelled the call, the reason of its signal. */
export function errorOf(failed: unknown, signal?: AbortSignal): unknown {
  if (failed instanceof RunekeepError) return failed;
  if (signal?.aborted) return signal.reason;
  const error = ConnectError.from(failed);
  const info = error.findDetails(ErrorInfoSchema)[0];
  // An error without a cause came from the server.
  if (!info && error.cause !== undefined && (BROKEN.has(error.code) || error.code === Code.Unavailable)) {
    return connectionError(error);
  }
  const violations = error
    .findDetails(BadRequestSchema)
    .flatMap((bad) => bad.fieldViolations.map(({ field, description }) => ({ field, description })));
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  const resource = error.findDetails(ResourceInfoSchema)[0];
  const details: Details = {
    code: codeName(error.code),
    reason: (info?.reason ?? "") as ErrorReason | "",
    violations,
    retryAfterMs: delay && Number(delay.seconds) * 1000 + delay.nanos / 1e6,
    resource: resource?.resourceName ?? "",
    resourceType: resource?.resourceType ?? "",
    metadata: { ...info?.metadata },
  };
  return new (CLASSES[error.code] ?? RunekeepError)(messageOf(error.rawMessage, violations), details, error);
}

function connectionError(error: ConnectError): RunekeepError {
  const code = systemCode(error);
  if (TLS.test(code)) {
    const advice = "Name the file with the certificate of the server's authority in caFile (RUNEKEEP_CA_FILE).";
    return new TlsError(`No connection over TLS: ${error.rawMessage} (${code}). ${advice}`, UNAVAILABLE, error);
  }
  // Browsers do not say that they refused a call because the server does not allow the page.
  const origin = error.cause instanceof TypeError ? globalThis.location?.origin : undefined;
  const advice = origin ? ` If it runs, allow this page: runekeep http --allow-origin ${origin}` : "";
  const message = `The server cannot be reached: ${error.rawMessage || code}.${advice}`;
  return new UnavailableError(message, UNAVAILABLE, error);
}

const UNAVAILABLE: Details = { code: "UNAVAILABLE" };

// The code of the system's error, such as ECONNREFUSED, which may lie some causes deep.
function systemCode(error: unknown): string {
  for (let one = error; one instanceof Error; one = one.cause) {
    if ("code" in one && typeof one.code === "string") return one.code;
  }
  return "";
}

function messageOf(message: string, violations: FieldViolation[]): string {
  const said = violations.map(({ field, description }) => `${field}: ${description}`);
  // The server's message may begin with one of them.
  return [message || "no message", ...said.filter((one) => !message.startsWith(one))].join("\n  ");
}

/** The name that gRPC has for a code, such as `NOT_FOUND`. */
export function codeName(code: Code): string {
  return code === Code.Canceled ? "CANCELLED" : Code[code].replace(/(?<=[a-z])[A-Z]/g, "_$&").toUpperCase();
}
