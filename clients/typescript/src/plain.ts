// Messages of the contract as plain objects, and their types.
import {
  ScalarType,
  type DescEnum,
  type DescField,
  type DescMessage,
  type Message as WireMessage,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import {
  anyUnpack,
  durationFromMs,
  durationMs,
  timestampDate,
  timestampFromDate,
  type Duration,
  type Timestamp,
} from "@bufbuild/protobuf/wkt";
import { codeName, type ErrorReason } from "./errors.js";
import { ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import type { Status } from "./gen/google/rpc/status_pb.js";
import type { AsOfSchema, FieldValue, FieldValueSchema, ReviewMode } from "./gen/runekeep/v1/common_pb.js";
import type { FoundKind, MemoryView, RecallLevel } from "./gen/runekeep/v1/memory_service_pb.js";
import type { ArchiveState, CommitStatus } from "./gen/runekeep/v1/session_service_pb.js";
import type { CommitOutcome, TaskKind, TaskPhase, TaskState } from "./gen/runekeep/v1/task_service_pb.js";

/** The value of a memory's field. A whole number that a `number` cannot hold exactly is a `bigint`. */
export type Scalar = string | number | bigint | boolean;

/** Why an attempt or a task failed: code and reason are those of errors. */
export interface Failure {
  code: string;
  reason: ErrorReason | "";
  message: string;
}

/** The values of an enum of the contract as words in lower case, without the prefix. */
export type Word<E> = Lowercase<Exclude<keyof E, "UNSPECIFIED"> & string>;

// Undefined stands for a value that is not set, or that this client does not know yet.
type EnumWord<T> =
  | (T extends TaskState
      ? Word<typeof TaskState>
      : T extends TaskKind
        ? Word<typeof TaskKind>
        : T extends TaskPhase
          ? Word<typeof TaskPhase>
          : T extends CommitOutcome
            ? Word<typeof CommitOutcome>
            : T extends CommitStatus
              ? Word<typeof CommitStatus>
              : T extends ArchiveState
                ? Word<typeof ArchiveState>
                : T extends FoundKind
                  ? Word<typeof FoundKind>
                  : T extends MemoryView
                    ? Word<typeof MemoryView>
                    : T extends RecallLevel
                      ? Word<typeof RecallLevel>
                      : T extends ReviewMode
                        ? Word<typeof ReviewMode>
                        : never)
  | undefined;

/**
 * A message of the contract as a plain object: 64-bit integers are numbers, enums are words, times are Dates, and
 * durations are milliseconds, with `Ms` behind the name. Members of a oneof are left out.
 */
export type PlainFields<T> = {
  [K in keyof T as K extends `$${string}`
    ? never
    : NonNullable<T[K]> extends { case: unknown }
      ? never
      : NonNullable<T[K]> extends Duration
        ? `${K & string}Ms`
        : K]: Plain<T[K]>;
};

type Plain<T> = T extends Timestamp
  ? Date
  : T extends Duration
    ? number
    : T extends FieldValue
      ? Scalar
      : T extends Status
        ? Failure
        : T extends WireMessage
          ? PlainFields<T>
          : T extends bigint
            ? number
            : T extends number
              ? `${number}` extends `${T}`
                ? number
                : EnumWord<T>
              : T extends (infer Item)[]
                ? Plain<Item>[]
                : T extends { [key: string]: infer Value }
                  ? Record<string, Plain<Value>>
                  : T;

/** See PlainFields. */
export function plain<T extends WireMessage>(schema: DescMessage, message: T): PlainFields<T> {
  const values = message as unknown as Record<string, unknown>;
  const found: Record<string, unknown> = {};
  for (const field of schema.fields) {
    const value = values[field.localName];
    if (field.oneof || value === undefined) continue;
    const isDuration = field.message?.typeName === "google.protobuf.Duration";
    found[isDuration ? `${field.localName}Ms` : field.localName] = fieldValue(field, value);
  }
  return found as PlainFields<T>;
}

function fieldValue(field: DescField, value: unknown): unknown {
  switch (field.fieldKind) {
    case "list":
      return (value as unknown[]).map((item) => single(field, item));
    case "map":
      return Object.fromEntries(Object.entries(value as object).map(([key, item]) => [key, single(field, item)]));
    default:
      return single(field, value);
  }
}

function single(field: DescField, value: unknown): unknown {
  if (field.message) return messageValue(field.message, value as WireMessage);
  if (field.enum) return enumWord(field.enum, value as number);
  if (field.scalar === ScalarType.FLOAT) return fromFloat32(value as number);
  return typeof value === "bigint" ? Number(value) : value;
}

function messageValue(schema: DescMessage, value: WireMessage): unknown {
  switch (schema.typeName) {
    case "google.protobuf.Timestamp":
      return timestampDate(value as Timestamp);
    case "google.protobuf.Duration":
      return durationMs(value as Duration);
    case "runekeep.v1.FieldValue":
      return fromFieldValue(value as FieldValue);
    case "google.rpc.Status":
      return failure(value as Status);
    default:
      return plain(schema, value);
  }
}

// A float32 has about seven digits; the rest is an artefact of widening it.
function fromFloat32(value: number): number {
  return Number(value.toPrecision(7));
}

function fromFieldValue({ kind }: FieldValue): Scalar | undefined {
  switch (kind.case) {
    case "int64Value":
      return Number.isSafeInteger(Number(kind.value)) ? Number(kind.value) : kind.value;
    case "float32Value":
      return fromFloat32(kind.value);
    default:
      return kind.value;
  }
}

export function toFieldValue(value: Scalar): MessageInitShape<typeof FieldValueSchema> {
  switch (typeof value) {
    case "string":
      return { kind: { case: "stringValue", value } };
    case "boolean":
      return { kind: { case: "boolValue", value } };
    case "bigint":
      return { kind: { case: "int64Value", value } };
    case "number":
      return Number.isSafeInteger(value)
        ? { kind: { case: "int64Value", value: BigInt(value) } }
        : { kind: { case: "float32Value", value } };
  }
}

export function failure(status: Status): Failure {
  const infos = status.details.map((detail) => anyUnpack(detail, ErrorInfoSchema));
  const reason = (infos.find((info) => info !== undefined)?.reason ?? "") as ErrorReason | "";
  return { code: codeName(status.code), reason, message: status.message };
}

/** The word of an enum's value; undefined for the unspecified one, and for one that this client does not know. */
export function enumWord(schema: DescEnum, number: number): string | undefined {
  return number === 0 ? undefined : schema.value[number]?.localName.toLowerCase();
}

/** The number of a word. Throws TypeError, which lists the words there are. */
export function enumNumber(schema: DescEnum, word: string | undefined): number {
  if (word === undefined) return 0;
  const value = schema.values.find((one) => one.number !== 0 && one.localName.toLowerCase() === word);
  if (value) return value.number;
  const known = schema.values.flatMap((one) => (one.number === 0 ? [] : [one.localName.toLowerCase()]));
  throw new TypeError(`${JSON.stringify(word)} is none of ${known.join(", ")}`);
}

export function toTimestamp(date: Date | undefined): Timestamp | undefined {
  return date && timestampFromDate(date);
}

export function toDuration(ms: number | undefined): Duration | undefined {
  return ms === undefined ? undefined : durationFromMs(ms);
}

/** A state of a user's memory: after a revision, or at a time. */
export function toAsOf(moment: number | Date | undefined): MessageInitShape<typeof AsOfSchema> | undefined {
  if (moment === undefined) return undefined;
  return moment instanceof Date
    ? { at: { case: "time", value: timestampFromDate(moment) } }
    : { at: { case: "revision", value: BigInt(moment) } };
}

/** Throws TypeError for options that a method does not have: JavaScript would pass a misspelt one over. */
export function refuseUnknown(rest: object, method: string): void {
  const [name] = Object.keys(rest);
  if (name !== undefined) throw new TypeError(`${method} has no option ${JSON.stringify(name)}`);
}
