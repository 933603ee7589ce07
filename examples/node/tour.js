// Runekeep from Node, the whole tour: a session with all kinds of parts, what was used, turn memory, a commit watched to
// its end, the tree, find and Recall, history and rollback, export, delete, import, erasure.
//
//     npm ci && node tour.js 127.0.0.1:7433
//
// Prints one JSON line a step and ends with 0, or with 1 and the error. What it writes belongs to the user RUNEKEEP_USER,
// `node-tour` when there is neither that nor a key, who is deleted at the end and must have nothing before.
// RUNEKEEP_API_KEY, RUNEKEEP_ACCOUNT, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE and RUNEKEEP_KEY_FILE are used where set.
"use strict";

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { Runekeep, RunekeepError, struct, value } = require("./client");

function say(step, details = {}) {
  process.stdout.write(JSON.stringify({ step, ...details }) + "\n");
}

function text(words) {
  return { text: { text: words } };
}

// What the server refuses, with the reason that a program acts on.
async function refused(call) {
  const error = await call.then(
    () => assert.fail("this was to be refused"),
    (known) => known,
  );
  if (!(error instanceof RunekeepError)) throw error;
  return error;
}

async function converse(runekeep) {
  const { sessions } = runekeep;
  const opened = await runekeep.call(sessions, "GetSession", { session: `node-${randomUUID()}`, auto_create: true });
  const { session_id: session, uri } = opened.session;
  say("session", { uri, created: opened.created });

  const messages = [
    {
      role: "ROLE_USER",
      turn_id: "turn-1",
      parts: [
        text("I am Nils, I live in Uppsala, and I prefer the greenhouse at 22 degrees."),
        {
          image: {
            url: "https://example.com/tomatoes.jpg",
            detail: "low",
            caption: "Tomato plants in a small greenhouse.",
          },
        },
      ],
    },
    {
      role: "ROLE_ASSISTANT",
      turn_id: "turn-1",
      parts: [
        { context: { uri: "viking://user/memories/profile.md", abstract: "Who the user is." } },
        {
          tool: {
            tool_id: "call-1",
            tool_name: "read_sensor",
            input: struct({ place: "greenhouse", unit: "celsius" }),
            output: "21.5 degrees",
            status: "TOOL_STATUS_COMPLETED",
            duration: { seconds: 0, nanos: 42_000_000 },
            total_tokens: 12,
          },
        },
        text("It is a little cooler now."),
      ],
    },
  ];
  const request = { session, messages, request_id: randomUUID() };
  const added = await runekeep.call(sessions, "AddMessages", request);
  // As after an answer that was lost: the same request_id, so nothing is added again.
  assert.deepEqual(await runekeep.call(sessions, "AddMessages", request), added);
  const kept = await runekeep.call(sessions, "ListMessages", { session });
  say("added", {
    sequences: added.messages.map(({ sequence }) => sequence),
    kept: kept.messages.length,
    parts: kept.messages.flatMap(({ parts }) => parts.map(({ part }) => part)),
  });

  const used = await runekeep.mutate(sessions, "RecordUsage", {
    session,
    context_uris: ["viking://user/memories/profile.md"],
    skills: [{ uri: "viking://user/skills/climate", input: value("warmer"), output: "done", success: true }],
  });
  say("used", used);
  return { session, uri, messages: added.messages.map(({ id }) => id) };
}

async function showErrors(runekeep, session) {
  const missing = await refused(runekeep.call(runekeep.sessions, "GetSession", { session: "nobody" }));
  say("refused", { code: missing.code, reason: missing.reason, resource: missing.resource });
  const wrong = await refused(
    runekeep.mutate(runekeep.sessions, "AddMessages", { session, messages: [{ role: "ROLE_USER", parts: [] }] }),
  );
  say("refused", { code: wrong.code, reason: wrong.reason, fields: wrong.violations.map(({ field }) => field) });
}

async function rememberTurn(runekeep, session) {
  const { turns } = runekeep;
  const fingerprint = {
    objective: "Keep the greenhouse at 22 degrees",
    topics: ["greenhouse"],
    assertions: [{ key: "temperature", value: value({ min: 21, max: 23 }), severity: "SIGNAL_SEVERITY_MUST" }],
  };
  await runekeep.mutate(turns, "SubmitTurn", { session, turn_id: "turn-1", fingerprint });
  const feedback = { turn_id: "turn-1", reaction: "REACTION_OK", text: "thanks", origin: "FEEDBACK_ORIGIN_USER" };
  await runekeep.mutate(turns, "SubmitFeedback", { session, feedback });
  const context = { session, current_turn_id: "turn-2", render: true };
  const shown = await runekeep.call(turns, "LoadTurnContext", { ...context, audience: "CONTEXT_AUDIENCE_RECONCILER" });
  await runekeep.mutate(turns, "SetTurnSelection", {
    session,
    offer: shown.offer,
    selection: { local_memories_turn_ids: ["turn-1"], current_turn_id: "turn-2" },
  });
  const answer = await runekeep.call(turns, "LoadTurnContext", {
    ...context,
    audience: "CONTEXT_AUDIENCE_FINAL_ANSWER",
  });
  say("turn", { text: answer.text });
}

async function commit(runekeep, session) {
  const made = await runekeep.mutate(runekeep.sessions, "CommitSession", { session });
  say("committed", { status: made.status, task_id: made.task_id, archive_uri: made.archive_uri });
  for await (const { event, resumed, ended } of runekeep.watch(made.task_id)) {
    if (event) say("event", { sequence: event.sequence, [event.event]: event[event.event] });
    if (resumed !== undefined) say("resumed", { after: resumed });
    if (ended) {
      const { outcome, revision, memories_extracted } = ended.result || {};
      say("ended", { state: ended.state, outcome, revision, memories_extracted });
      assert.equal(ended.state, "TASK_STATE_COMPLETED", ended.error?.message);
      return { archive: made.archive_uri, revision };
    }
  }
  throw new Error("a watch ends with the task");
}

async function readTree(runekeep) {
  const root = "viking://user/memories";
  const tree = await runekeep.call(runekeep.memories, "ListDirectory", { uri: root, depth: 16 });
  const documents = tree.entries.filter(({ directory }) => !directory).map(({ uri }) => uri);
  say("tree", { documents });
  const grep = { uri: root, pattern: "22 degrees" };
  const { matches } = await runekeep.call(runekeep.memories, "GrepDocuments", grep);
  assert.notEqual(matches.length, 0, "no document says what was said");
  const read = await runekeep.call(runekeep.memories, "ReadDocument", { uri: matches[0].uri });
  say("document", { uri: read.uri, text: read.text });
  return { uri: read.uri, text: read.text };
}

async function search(runekeep, session, revision) {
  const query = "How warm should the greenhouse be?";
  // min_revision: what was just committed is found.
  const find = { query, limit: 3, min_revision: revision, explain: true };
  const found = await runekeep.call(runekeep.memories, "FindMemories", find);
  say("found", {
    results: found.results.map(({ item, score, detail, ...kinds }) => ({
      kind: item,
      uri: kinds[item].uri,
      score,
      parts: detail.parts.map(({ name, added }) => ({ name, added })),
    })),
  });
  const recalled = await runekeep.mutate(runekeep.memories, "Recall", { query, session, token_budget: 300 });
  say("recalled", { tokens: recalled.tokens, text: recalled.text });
  const context = await runekeep.call(runekeep.sessions, "GetSessionContext", { session, token_budget: 1000 });
  say("context", { tokens: context.tokens, overview_uri: context.overview_uri });
}

async function lookBack(runekeep, session, message, archive) {
  const { history } = runekeep;
  const listed = await runekeep.call(history, "ListRevisions");
  say("history", { revisions: listed.revisions.map(({ number, origin, adds }) => ({ number, origin, adds })) });
  const from = await runekeep.call(history, "ListMessageMemories", { session, message_id: message });
  say("sources", { message, memories: from.memories.map(({ uri }) => uri) });
  const preview = await runekeep.call(history, "RollbackRevision", { archive_uri: archive, preview: true });
  const undone = await runekeep.mutate(history, "RollbackRevision", {
    archive_uri: archive,
    expected_revision: preview.newest_revision,
  });
  const diff = await runekeep.call(history, "DiffRevisions", {
    from: { revision: preview.newest_revision },
    to: { revision: undone.revision },
  });
  say("rolled back", { revision: undone.revision, deleted: diff.changes.map(({ uri }) => uri) });
  const redone = await runekeep.mutate(history, "RollbackRevision", { revision: undone.revision });
  say("rolled forward", { revision: redone.revision, changes: redone.changes.length });
}

async function takeAlong(runekeep, user, document) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "runekeep-"));
  try {
    const file = path.join(folder, "space.tar.gz");
    say("exported", { bytes: await runekeep.exportTo(file) });
    say("deleted", await runekeep.mutate(runekeep.memories, "DeleteUser", { user }));
    const gone = await refused(runekeep.call(runekeep.memories, "ReadDocument", { uri: document.uri }));
    assert.equal(gone.reason, "RESOURCE_NOT_FOUND");
    const { contents } = await runekeep.importFrom(file);
    const read = await runekeep.call(runekeep.memories, "ReadDocument", { uri: document.uri });
    assert.equal(read.text, document.text);
    say("imported", { sessions: contents.sessions, messages: contents.messages, memories: contents.memories });
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

async function leave(runekeep, user, session) {
  say("session deleted", await runekeep.mutate(runekeep.sessions, "DeleteSession", { session }));
  const asked = await runekeep.mutate(runekeep.spaces, "EraseData", { user });
  // Nothing can be read any more. The receipt says `verified` once store and index have let go of it too, which may wait
  // for the server's next purge.
  const { erasure } = await runekeep.call(runekeep.spaces, "GetErasure", { erasure_id: asked.erasure.erasure_id });
  const left = await runekeep.call(runekeep.sessions, "ListSessions");
  say("erased", { state: erasure.state, scope: erasure.scope, sessions_left: left.sessions.length });
}

async function main(address) {
  const { env } = process;
  const runekeep = new Runekeep(address, {
    account: env.RUNEKEEP_ACCOUNT,
    // A key of scope user says itself whom it acts for.
    user: env.RUNEKEEP_USER || (env.RUNEKEEP_API_KEY ? undefined : "node-tour"),
    apiKey: env.RUNEKEEP_API_KEY,
    caFile: env.RUNEKEEP_CA_FILE,
    certFile: env.RUNEKEEP_CERT_FILE,
    keyFile: env.RUNEKEEP_KEY_FILE,
  });
  try {
    const { session, uri, messages } = await converse(runekeep);
    const user = uri.split("/")[3];
    await showErrors(runekeep, session);
    await rememberTurn(runekeep, session);
    const { archive, revision } = await commit(runekeep, session);
    const document = await readTree(runekeep);
    await search(runekeep, session, revision);
    await lookBack(runekeep, session, messages[0], archive);
    await takeAlong(runekeep, user, document);
    await leave(runekeep, user, session);
  } finally {
    runekeep.close();
  }
}

if (process.argv.length !== 3) {
  process.stderr.write("usage: node tour.js HOST:PORT\n");
  process.exit(2);
}
main(process.argv[2]).catch((error) => {
  process.stderr.write(`${error instanceof RunekeepError ? `${error.code} ${error.reason}: ` : ""}${error.message}\n`);
  process.exitCode = 1;
});
