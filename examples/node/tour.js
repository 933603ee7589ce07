// Runekeep from Node: adds messages to a session, commits it, and watches the task to its end.
//
//     npm ci && node tour.js 127.0.0.1:7433
//
// Prints one JSON line a step. Ends with 0 when the commit is completed, 1 otherwise.
"use strict";

const { randomUUID } = require("node:crypto");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const PROTO_ROOT = path.join(__dirname, "..", "..", "proto");
const SERVICES = ["session", "memory", "task"].map((name) => `runekeep/v1/${name}_service.proto`);
const CALL_MS = 10_000;
const LONGEST_MS = 120_000;
const RECONNECT_MS = 200;

function say(step, details) {
  process.stdout.write(JSON.stringify({ step, ...details }) + "\n");
}

function connect(address) {
  const definition = protoLoader.loadSync(SERVICES, {
    includeDirs: [PROTO_ROOT],
    keepCase: true,
    longs: Number,
    enums: String,
    oneofs: true,
  });
  const { SessionService, MemoryService, TaskService } = grpc.loadPackageDefinition(definition).runekeep.v1;
  const credentials = grpc.credentials.createInsecure();
  return {
    sessions: new SessionService(address, credentials),
    memories: new MemoryService(address, credentials),
    tasks: new TaskService(address, credentials),
  };
}

function identity() {
  const metadata = new grpc.Metadata();
  metadata.set("x-runekeep-user", process.env.RUNEKEEP_USER || "node-tour");
  return metadata;
}

// A unary call with a deadline. A mutation whose result is unknown is repeated with the same request_id.
async function call(client, method, request, attempts = 3) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await new Promise((resolve, reject) => {
        const options = { deadline: Date.now() + CALL_MS };
        client[method](request, identity(), options, (error, answer) => (error ? reject(error) : resolve(answer)));
      });
    } catch (error) {
      if (error.code !== grpc.status.UNAVAILABLE || attempt === attempts) throw error;
    }
  }
}

// Follows a task to its end. A stream that breaks is taken up again after the last event seen.
async function watch(tasks, taskId) {
  const end = Date.now() + LONGEST_MS;
  let last = 0;
  while (Date.now() < end) {
    const stream = tasks.WatchTask({ task_id: taskId, after_sequence: last }, identity(), { deadline: end });
    try {
      for await (const update of stream) {
        if (update.event) {
          last = update.event.sequence;
          say(update.event.event, { sequence: last, [update.event.event]: update.event[update.event.event] });
        } else if (update.ended) {
          return update.ended;
        }
      }
    } catch (error) {
      if (error.code !== grpc.status.UNAVAILABLE) throw error;
      await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    } finally {
      stream.cancel();
    }
  }
  throw new Error(`the task has not ended within ${LONGEST_MS} ms`);
}

async function main(address) {
  const { sessions, memories, tasks } = connect(address);
  const opened = await call(sessions, "GetSession", { session: `node-${randomUUID()}`, auto_create: true });
  const session = opened.session.session_id;
  say("session", { session: opened.session.uri });

  const text = (role, words) => ({ role, parts: [{ text: { text: words } }] });
  const tool = {
    tool_id: "call-1",
    tool_name: "read_sensor",
    output: "21.5 degrees",
    status: "TOOL_STATUS_COMPLETED",
    duration: { seconds: 0, nanos: 42_000_000 },
    total_tokens: 12,
  };
  const messages = [
    text("ROLE_USER", "I am Nils, I live in Uppsala, and I prefer the greenhouse at 22 degrees."),
    { role: "ROLE_ASSISTANT", parts: [{ text: { text: "It is a little cooler now." } }, { tool }] },
  ];
  const added = await call(sessions, "AddMessages", { session, messages, request_id: randomUUID() });
  say("added", { sequences: added.messages.map((message) => message.sequence) });

  const commit = await call(sessions, "CommitSession", { session, request_id: randomUUID() });
  say("committed", { status: commit.status, task_id: commit.task_id, archive_uri: commit.archive_uri });

  const task = await watch(tasks, commit.task_id);
  const result = task.result || {};
  say("ended", { state: task.state, outcome: result.outcome, memories_extracted: result.memories_extracted });
  if (task.state !== "TASK_STATE_COMPLETED") return 1;

  const found = await call(memories, "FindMemories", {
    query: "How warm should the greenhouse be?",
    limit: 3,
    min_revision: result.revision,
  });
  say("found", { results: found.results.map(({ item, score, ...kinds }) => ({ kind: item, score, uri: kinds[item].uri })) });
  return 0;
}

if (process.argv.length !== 3) {
  process.stderr.write("usage: node tour.js HOST:PORT\n");
  process.exit(2);
}
main(process.argv[2]).then(
  (status) => process.exit(status),
  (error) => {
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  },
);
