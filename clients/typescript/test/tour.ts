// A session, a commit watched to its end over a connection that breaks, a search, and what errors say. Prints one JSON
// line a step. tests/languages/test_typescript.py runs it with an address.
import { HistoryService } from "../src/gen/runekeep/v1/history_service_pb.js";
import { MemoryService } from "../src/gen/runekeep/v1/memory_service_pb.js";
import type { WatchTaskRequest } from "../src/gen/runekeep/v1/task_service_pb.js";
import { Client, RunekeepError, type ClientOptions } from "../src/index.js";

function say(step: string, details: object): void {
  const exact = (_: string, value: unknown) => (typeof value === "bigint" ? Number(value) : value);
  process.stdout.write(JSON.stringify({ step, ...details }, exact) + "\n");
}

// Says when a watch goes on over another stream.
const tellResumed: NonNullable<ClientOptions["interceptors"]>[number] = (next) => async (request) => {
  if (!request.stream || request.method.name !== "WatchTask") return await next(request);
  let after = 0n;
  const messages = request.message as AsyncIterable<WatchTaskRequest>;
  const seen = (async function* () {
    for await (const message of messages) {
      after = message.afterSequence;
      yield message;
    }
  })();
  const response = await next({ ...request, message: seen });
  if (after > 0n) say("resumed", { after });
  return response;
};

async function tour(client: Client): Promise<void> {
  const session = client.session();
  const added = await session.addMessages([
    { role: "user", content: "I am Edda, I live in Aarhus, and I drink black tea in the morning." },
    { role: "assistant", content: [{ type: "tool", toolName: "kettle", output: "boiling", status: "completed" }] },
  ]);
  say("session", { uri: (await session.info()).uri, created: true });
  say("added", { sequences: added.messages.map(({ sequence }) => sequence) });
  try {
    await session.addMessages([{ role: "user", content: [] }]);
  } catch (error) {
    if (!(error instanceof RunekeepError)) throw error;
    say("refused", { reason: error.reason, fields: [error.field] });
  }

  const commit = await session.commit();
  say("committed", { task: commit.taskId, archive: commit.archiveUri });
  let revision = 0;
  for await (const update of client.watchTask(commit.taskId)) {
    if ("sequence" in update) say("event", { sequence: update.sequence, what: update.kind });
    if (update.kind === "ended") {
      const { state, result } = update.task;
      revision = result?.revision ?? 0;
      say("ended", { state: state?.toUpperCase(), outcome: result?.outcome?.toUpperCase(), revision });
    }
  }

  const found = await client.find("What does she drink in the morning?", {
    limit: 3,
    minRevision: revision,
    explain: true,
  });
  say("found", {
    results: found.results.map(({ uri, score, detail }) => ({ uri, score, parts: detail?.parts })),
  });
  const profile = await client.service(MemoryService).readDocument({ uri: "viking://user/memories/profile.md" });
  say("document", { uri: profile.uri, text: profile.text });
  const { revisions } = await client.service(HistoryService).listRevisions({});
  say("history", { revisions: revisions.map(({ number }) => number) });
  await client.deleteSession(session.sessionId);
  say("deleted", { session: session.sessionId });
}

const [address] = process.argv.slice(2);
const { RUNEKEEP_USER, RUNEKEEP_API_KEY } = process.env;
const user = RUNEKEEP_USER || (RUNEKEEP_API_KEY ? undefined : "typescript-tour");
await tour(new Client({ address, user, interceptors: [tellResumed] }));
