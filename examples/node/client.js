// A small client for Runekeep without generated code: one channel, metadata, deadlines, repeats, errors with their
// details, watches that outlive a broken stream, exports and imports. Copy what you need of it.
"use strict";

const { randomUUID } = require("node:crypto");
const { once } = require("node:events");
const fs = require("node:fs");
const path = require("node:path");
const { pipeline } = require("node:stream/promises");
const { setTimeout: sleep } = require("node:timers/promises");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const ROOT = path.join(__dirname, "..", "..");
const SERVICES = ["session", "memory", "history", "task", "turn_memory", "space"];
const FILES = [...SERVICES.map((name) => `runekeep/v1/${name}_service.proto`), "google/rpc/error_details.proto"];
const SERVICE_CONFIG = path.join(ROOT, "deploy", "service-config.json");

const CALL_MS = 10_000;
const REPEAT_MS = 60_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;
// Three keep-alives of the server that did not come.
const SILENCE_MS = 45_000;
const PIECE_BYTES = 256 * 1024;
const LOOPBACK = /^(127(\.\d{1,3}){3}|localhost|\[::1\]):\d+$/;

const DEFINITION = protoLoader.loadSync(FILES, {
  includeDirs: [path.join(ROOT, "proto")],
  keepCase: true,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
});

// A call that failed: `code` is the name of the gRPC status, the others are what the server's details say.
class RunekeepError extends Error {
  constructor(error) {
    super(error.details || error.message);
    this.name = "RunekeepError";
    this.code = grpc.status[error.code];
    this.reason = "";
    this.info = {};
    this.violations = [];
    this.conflicts = [];
    this.resource = "";
    this.retryAfterMs = undefined;
    const [packed] = error.metadata ? error.metadata.get("grpc-status-details-bin") : [];
    for (const detail of packed ? DEFINITION["google.rpc.Status"].deserialize(packed).details : []) {
      this._add(detail.type_url.split("/").pop(), detail.value);
    }
  }

  _add(type, value) {
    const known = DEFINITION[type];
    if (!known) return;
    const detail = known.deserialize(value);
    if (type === "google.rpc.ErrorInfo") [this.reason, this.info] = [detail.reason, detail.metadata];
    if (type === "google.rpc.BadRequest") this.violations = detail.field_violations;
    if (type === "google.rpc.PreconditionFailure") this.conflicts = detail.violations;
    if (type === "google.rpc.ResourceInfo") this.resource = detail.resource_name;
    if (type === "google.rpc.RetryInfo") this.retryAfterMs = milliseconds(detail.retry_delay);
  }

  // Whether the very same call may go through later.
  get passing() {
    return this.code === "UNAVAILABLE" || this.retryAfterMs !== undefined;
  }
}

// Account, user and key are told with every call; TLS when there is a certificate to trust or the address asks for it.
class Runekeep {
  constructor(address, { account, user, apiKey, caFile, certFile, keyFile } = {}) {
    const secure = address.startsWith("https://") || Boolean(caFile);
    const target = address.replace(/^https?:\/\//, "");
    const here = LOOPBACK.test(target);
    if (apiKey && !secure && !here) {
      throw new Error("a key is not sent in plain text: name the server's CA file, or an https:// address");
    }
    const read = (file) => (file ? fs.readFileSync(file) : null);
    const credentials = secure
      ? grpc.credentials.createSsl(read(caFile), read(keyFile), read(certFile))
      : grpc.credentials.createInsecure();
    const options = {
      // A proxy of the environment would ask a machine that is not this one.
      "grpc.enable_http_proxy": here ? 0 : 1,
      "grpc.service_config": fs.readFileSync(SERVICE_CONFIG, "utf8"),
      "grpc.initial_reconnect_backoff_ms": FIRST_PAUSE_MS,
      "grpc.max_reconnect_backoff_ms": LONGEST_PAUSE_MS,
      "grpc.max_receive_message_length": 64 * 1024 * 1024,
    };
    this._metadata = new grpc.Metadata();
    if (apiKey) this._metadata.set("authorization", `Bearer ${apiKey}`);
    if (account) this._metadata.set("x-runekeep-account", account);
    if (user) this._metadata.set("x-runekeep-user", user);
    const services = grpc.loadPackageDefinition(DEFINITION).runekeep.v1;
    // All stubs share the channel of the first.
    this.sessions = new services.SessionService(target, credentials, options);
    const shared = { channelOverride: this.sessions.getChannel() };
    this.memories = new services.MemoryService(target, credentials, shared);
    this.history = new services.HistoryService(target, credentials, shared);
    this.tasks = new services.TaskService(target, credentials, shared);
    this.turns = new services.TurnMemoryService(target, credentials, shared);
    this.spaces = new services.SpaceService(target, credentials, shared);
  }

  // A unary call. While the server is away or asks to come later, the very same request goes again: a mutation carries
  // a request_id, so it is done once.
  async call(service, method, request = {}) {
    const end = Date.now() + REPEAT_MS;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      try {
        return await new Promise((resolve, reject) => {
          const options = { deadline: Date.now() + CALL_MS };
          service[method](request, this._metadata, options, (error, answer) => (error ? reject(error) : resolve(answer)));
        });
      } catch (status) {
        const error = new RunekeepError(status);
        const wait = Math.max(error.retryAfterMs ?? 0, pause * (0.5 + Math.random()));
        if (!error.passing || Date.now() + wait > end) throw error;
        await sleep(wait);
      }
    }
  }

  // A call that changes something, under a request_id of its own.
  mutate(service, method, request = {}) {
    return this.call(service, method, { ...request, request_id: request.request_id || randomUUID() });
  }

  // Follows a task: yields each event once and in order, and { ended: task } last. A stream that breaks or falls
  // silent is taken up again after the last event seen; then { resumed: sequence } says so.
  async *watch(taskId, afterSequence = 0) {
    let last = afterSequence;
    let pause = FIRST_PAUSE_MS;
    let end = Date.now() + REPEAT_MS;
    for (;;) {
      const stream = this.tasks.WatchTask({ task_id: taskId, after_sequence: last }, this._metadata);
      const silence = setTimeout(() => stream.cancel(), SILENCE_MS);
      let task;
      try {
        for await (const { update, event, ended } of stream) {
          silence.refresh();
          [pause, end] = [FIRST_PAUSE_MS, Date.now() + REPEAT_MS];
          // The server closes the stream next.
          if (update === "ended") task = ended;
          if (update === "event" && event.sequence > last) {
            last = event.sequence;
            yield { event };
          }
        }
      } catch (status) {
        if (!status.metadata) throw status;
        const error = new RunekeepError(status);
        if (!task && !(error.passing || error.code === "CANCELLED")) throw error;
        if (!task && Date.now() > end) throw error;
      } finally {
        clearTimeout(silence);
        stream.cancel();
      }
      if (task) {
        yield { ended: task };
        return;
      }
      await sleep(pause);
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
      yield { resumed: last };
    }
  }

  // Writes everything of the user into a file; its size in bytes. Export again after an error.
  async exportTo(file) {
    const stream = this.spaces.ExportSpace({}, this._metadata);
    const data = async function* (pieces) {
      for await (const piece of pieces) yield piece.data;
    };
    try {
      await pipeline(stream, data, fs.createWriteStream(file));
    } catch (status) {
      throw status.metadata ? new RunekeepError(status) : status;
    } finally {
      stream.cancel();
    }
    return fs.statSync(file).size;
  }

  // Makes an export the data of the user, who must have nothing: all of it or nothing.
  async importFrom(file, requestId = randomUUID()) {
    const end = Date.now() + REPEAT_MS;
    for (;;) {
      try {
        return await this._send(file, requestId);
      } catch (error) {
        if (!error.passing || Date.now() > end) throw error;
        await sleep(error.retryAfterMs ?? LONGEST_PAUSE_MS);
      }
    }
  }

  async _send(file, requestId) {
    let stream;
    const answer = new Promise((resolve, reject) => {
      stream = this.spaces.ImportSpace(this._metadata, (status, told) =>
        status ? reject(new RunekeepError(status)) : resolve(told),
      );
    });
    const sent = (async () => {
      stream.write({ options: { request_id: requestId } });
      for await (const data of fs.createReadStream(file, { highWaterMark: PIECE_BYTES })) {
        if (!stream.write({ data })) await Promise.race([once(stream, "drain"), answer]);
      }
      stream.end();
    })();
    try {
      // The answer may come before all is sent: an import that is refused.
      const [told] = await Promise.all([answer, sent]);
      return told;
    } finally {
      stream.cancel();
    }
  }

  close() {
    this.sessions.close();
  }
}

function milliseconds({ seconds, nanos }) {
  return seconds * 1000 + nanos / 1e6;
}

// A google.protobuf.Value of what JSON can say.
function value(plain) {
  if (plain === null) return { nullValue: "NULL_VALUE" };
  if (typeof plain === "string") return { stringValue: plain };
  if (typeof plain === "number") return { numberValue: plain };
  if (typeof plain === "boolean") return { boolValue: plain };
  if (Array.isArray(plain)) return { listValue: { values: plain.map(value) } };
  return { structValue: struct(plain) };
}

// A google.protobuf.Struct of a plain object.
function struct(plain) {
  return { fields: Object.fromEntries(Object.entries(plain).map(([name, item]) => [name, value(item)])) };
}

module.exports = { Runekeep, RunekeepError, struct, value };
