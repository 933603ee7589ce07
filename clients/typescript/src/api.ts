// What both clients, for Node and for browsers, export beside themselves.
export type { NewSession } from "./client.js";
export type { Identity } from "./connection.js";
export {
  AbortedError,
  AccessDeniedError,
  AlreadyExistsError,
  DeadlineExceededError,
  FailedPreconditionError,
  InvalidArgumentError,
  NotFoundError,
  ResourceExhaustedError,
  RunekeepError,
  TlsError,
  UnavailableError,
  type ErrorReason,
  type FieldViolation,
} from "./errors.js";
export type {
  ContextPart,
  ImagePart,
  Message,
  MessageInput,
  Part,
  RoleName,
  TextPart,
  ToolPart,
} from "./messages.js";
export type {
  AutoCommit,
  CallOptions,
  FindOptions,
  MemoryPolicy,
  MutationOptions,
  RecallOptions,
} from "./options.js";
export type { Failure, Scalar } from "./plain.js";
export { newRequestId } from "./request-id.js";
export type * from "./results.js";
export { Session, type CommitOptions, type SessionChanges, type SkillUsage } from "./session.js";
