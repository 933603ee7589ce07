// Runekeep from TypeScript: a session, a commit watched to its end, what is remembered, a search, and what errors say.
//
//     make stubs-typescript && cd examples/typescript && npm run build && npm run tour -- 127.0.0.1:7433
//
// Prints one JSON line a step. RUNEKEEP_API_KEY, RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE and
// RUNEKEEP_KEY_FILE are used where set.
import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Role, ToolStatus, type MessageSchema } from "../gen/runekeep/v1/common_pb.js";
import { CommitOutcome, TaskState } from "../gen/runekeep/v1/task_service_pb.js";
import { connect, deadline, explained, watch, type Runekeep } from "./client.js";

function say(step: string, details: object): void {
  const exact = (_: string, value: unknown) => (typeof value === "bigint" ? Number(value) : value);
  process.stdout.write(JSON.stringify({ step, ...details }, exact) + "\n");
}

const MESSAGES: MessageInitShape<typeof MessageSchema>[] = [
  {
    role: Role.USER,
    parts: [
      { part: { case: "text", value: { text: "I am Edda, I live in Aarhus, and I drink black tea in the morning." } } },
      { part: { case: "image", value: { url: "https://example.com/tea.jpg", caption: "A pot of tea." } } },
    ],
  },
  {
    role: Role.ASSISTANT,
    parts: [
      { part: { case: "context", value: { uri: "viking://user/memories/profile.md", abstract: "Who the user is." } } },
      {
        part: {
          case: "tool",
          value: {
            toolId: "call-1",
            toolName: "kettle",
            input: { degrees: 95 },
            output: "boiling",
            status: ToolStatus.COMPLETED,
            duration: { seconds: 2n, nanos: 0 },
          },
        },
      },
    ],
  },
];

async function tour(runekeep: Runekeep): Promise<void> {
  const { sessions, memories, history } = runekeep;
  const opened = await sessions.getSession({ session: `ts-${randomUUID()}`, autoCreate: true }, deadline);
  const session = opened.session?.sessionId ?? "";
  say("session", { uri: opened.session?.uri, created: opened.created });

  const added = await sessions.addMessages({ session, messages: MESSAGES, requestId: randomUUID() }, deadline);
  say("added", { sequences: added.messages.map(({ sequence }) => sequence) });
  try {
    await sessions.addMessages({ session, messages: [{ role: Role.USER }], requestId: randomUUID() }, deadline);
  } catch (error) {
    say("refused", explained(error));
  }

  const commit = await sessions.commitSession({ session, requestId: randomUUID() }, deadline);
  say("committed", { task: commit.taskId, archive: commit.archiveUri });
  let revision = 0n;
  for await (const update of watch(runekeep, commit.taskId)) {
    if ("event" in update) say("event", { sequence: update.event.sequence, what: update.event.event.case });
    if ("resumed" in update) say("resumed", { after: update.resumed });
    if ("ended" in update) {
      const { state, result } = update.ended;
      revision = result?.revision ?? 0n;
      say("ended", { state: TaskState[state], outcome: CommitOutcome[result?.outcome ?? 0], revision });
      if (state !== TaskState.COMPLETED) throw new Error("the commit was not completed");
    }
  }

  const query = { query: "What does she drink in the morning?", limit: 3, minRevision: revision, explain: true };
  const found = await memories.findMemories(query, deadline);
  say("found", {
    results: found.results.map(({ item, score, detail }) => ({
      kind: item.case,
      uri: item.value?.uri,
      score,
      parts: detail?.parts.map(({ name, added }) => ({ name, added })),
    })),
  });
  const profile = await memories.readDocument({ uri: "viking://user/memories/profile.md" }, deadline);
  say("document", { uri: profile.uri, text: profile.text });
  const revisions = await history.listRevisions({}, deadline);
  say("history", { revisions: revisions.revisions.map(({ number, adds }) => ({ number, adds })) });
  await sessions.deleteSession({ session, requestId: randomUUID() }, deadline);
  say("deleted", { session });
}

const [address] = process.argv.slice(2);
if (address === undefined) {
  process.stderr.write("usage: tour HOST:PORT\n");
  process.exit(2);
}
const { env } = process;
try {
  await tour(
    connect(address, {
      account: env["RUNEKEEP_ACCOUNT"],
      user: env["RUNEKEEP_USER"] || (env["RUNEKEEP_API_KEY"] ? undefined : "typescript-tour"),
      apiKey: env["RUNEKEEP_API_KEY"],
      caFile: env["RUNEKEEP_CA_FILE"],
      certFile: env["RUNEKEEP_CERT_FILE"],
      keyFile: env["RUNEKEEP_KEY_FILE"],
    }),
  );
} catch (error) {
  const { code, reason } = explained(error);
  process.stderr.write(`${code} ${reason}: ${String(error)}\n`);
  process.exitCode = 1;
}
