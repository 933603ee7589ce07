// Options of calls, and the requests that they become.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions as ConnectOptions } from "@connectrpc/connect";
import { ReviewModeSchema, type MemoryPolicySchema, type ReviewMode } from "./gen/runekeep/v1/common_pb.js";
import {
  FoundKindSchema,
  MemoryViewSchema,
  RecallLevelSchema,
  RecallPartSchema,
  type FindMemoriesRequestSchema,
  type FoundKind,
  type MemoryView,
  type RecallLevel,
  type RecallPart,
  type RecallRequestSchema,
} from "./gen/runekeep/v1/memory_service_pb.js";
import type { AutoCommitSchema } from "./gen/runekeep/v1/session_service_pb.js";
import {
  enumNumber,
  refuseUnknown,
  toAsOf,
  toDuration,
  toFieldValue,
  toTimestamp,
  type Scalar,
  type Word,
} from "./plain.js";

/** Options of every call. */
export interface CallOptions {
  /** Cancels the call, which then fails with the reason of the signal. */
  signal?: AbortSignal | undefined;
  /** Milliseconds that the call may take with all its attempts; otherwise those of the client or of the contract. */
  timeoutMs?: number | undefined;
}

/** Options of every call that changes something. */
export interface MutationOptions extends CallOptions {
  /** The id of the change. To repeat a call whose result is unknown, give the same one. */
  requestId?: string | undefined;
}

/** Whose memories a commit may change; see the guide on sessions. What is not given takes its default. */
export interface MemoryPolicy {
  self?: { enabled: boolean } | undefined;
  peer?: { enabled: boolean } | undefined;
  memoryTypes?: { names: string[] } | undefined;
  sessionSkills?: { enabled: boolean } | undefined;
  review?: Word<typeof ReviewMode> | undefined;
}

/** When a session commits by itself. What is 0 or not given plays no part. */
export interface AutoCommit {
  /** Once its live messages have so many tokens. */
  pendingTokens?: number;
  /** Once it has so many live messages. */
  messageCount?: number;
  /** Once nothing was added for so many milliseconds. */
  idleMs?: number | undefined;
  /** So many of the newest messages stay live. */
  keepRecentCount?: number;
}

interface SearchOptions extends CallOptions {
  /** Limits the results to documents below this URI. */
  targetUri?: string;
  memoryTypes?: string[];
  kinds?: Word<typeof FoundKind>[];
  /** `""` is the user. */
  peers?: string[];
  /** All of them must match. */
  tags?: string[];
  startTime?: Date;
  endTime?: Date;
  scoreThreshold?: number;
  /** From 0 to 1: leaves out what is less relevant. */
  minRelevance?: number;
  /** Waits until this revision can be found. */
  minRevision?: number;
}

export interface FindOptions extends SearchOptions {
  /** 10 if it is not given. */
  limit?: number;
  /** Compares fields of memories for equality. */
  filter?: Record<string, Scalar>;
  /** How much of each memory to return; `abstract` if it is not given. */
  view?: Word<typeof MemoryView>;
  /** URIs or ids. */
  sessions?: string[];
  /** Searches the state after a revision or at a time. */
  asOf?: number | Date;
  /** Adds the parts of each score to its `detail`. */
  explain?: boolean;
}

export interface RecallOptions extends SearchOptions, MutationOptions {
  /** Tokens of the text; 2000 if it is not given. */
  tokenBudget?: number;
  /** By memory type, or for `passages`, the maximum number of entries, or of entries and of their tokens. */
  quotas?: Record<string, number | { items: number; tokens: number }>;
  maxLevel?: Word<typeof RecallLevel>;
  /** Entries, 1 to 100; 40 if it is not given. */
  limit?: number;
  /** Includes what the session got before. */
  repeat?: boolean;
  /** `stable`: profile, preferences and plans; `query`, the default: what is relevant to the query. */
  parts?: Word<typeof RecallPart>[];
  /** Tokens of the stable part; 500 if it is not given. */
  stableBudget?: number;
}

/** Those of a call that Connect takes. */
export function callOptions({ signal, timeoutMs }: CallOptions): ConnectOptions {
  return { ...(signal && { signal }), ...(timeoutMs !== undefined && { timeoutMs }) };
}

export function findRequest(query: string, options: FindOptions): MessageInitShape<typeof FindMemoriesRequestSchema> {
  const { limit = 10, filter = {}, view = "abstract", sessions = [], asOf, explain = false, ...search } = options;
  return {
    query,
    ...searchFields(search, "find"),
    limit,
    filter: Object.fromEntries(Object.entries(filter).map(([name, value]) => [name, toFieldValue(value)])),
    view: enumNumber(MemoryViewSchema, view),
    sessions,
    asOf: toAsOf(asOf),
    explain,
  };
}

export function recallRequest(
  query: string,
  session: string,
  options: RecallOptions,
): MessageInitShape<typeof RecallRequestSchema> {
  const { tokenBudget = 0, quotas = {}, maxLevel = "full", limit = 0, repeat = false, ...others } = options;
  const { parts = [], stableBudget = 0, requestId = "", ...search } = others;
  return {
    query,
    session,
    ...searchFields(search, "recall"),
    tokenBudget,
    quotas: Object.entries(quotas).map(([memoryType, most]) => {
      const { items, tokens } = typeof most === "number" ? { items: most, tokens: 0 } : most;
      return { memoryType, maxItems: items, maxTokens: tokens };
    }),
    maxLevel: enumNumber(RecallLevelSchema, maxLevel),
    limit,
    repeat,
    parts: parts.map((part) => enumNumber(RecallPartSchema, part)),
    stableBudget,
    requestId,
  };
}

function searchFields(options: SearchOptions, method: string) {
  const { targetUri = "", memoryTypes = [], kinds = [], peers = [], tags = [], startTime, endTime, ...others } = options;
  const { scoreThreshold, minRelevance, minRevision = 0, signal, timeoutMs, ...rest } = others;
  void signal, timeoutMs;
  refuseUnknown(rest, method);
  return {
    targetUri,
    memoryTypes,
    kinds: kinds.map((kind) => enumNumber(FoundKindSchema, kind)),
    peers,
    tags,
    startTime: toTimestamp(startTime),
    endTime: toTimestamp(endTime),
    scoreThreshold,
    minRelevance,
    minRevision: BigInt(minRevision),
  };
}

export function policyToWire(policy: MemoryPolicy | undefined): MessageInitShape<typeof MemoryPolicySchema> | undefined {
  if (policy === undefined) return undefined;
  const { self, peer, memoryTypes, sessionSkills, review, ...rest } = policy;
  refuseUnknown(rest, "memoryPolicy");
  return { self, peer, memoryTypes, sessionSkills, review: enumNumber(ReviewModeSchema, review) };
}

export function autoCommitToWire(rules: AutoCommit | undefined): MessageInitShape<typeof AutoCommitSchema> | undefined {
  if (rules === undefined) return undefined;
  const { pendingTokens = 0, messageCount = 0, idleMs, keepRecentCount = 0, ...rest } = rules;
  refuseUnknown(rest, "autoCommit");
  return { pendingTokens: BigInt(pendingTokens), messageCount, idle: toDuration(idleMs), keepRecentCount };
}
