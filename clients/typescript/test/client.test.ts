// The client against a real server with an extractor, over gRPC and through `runekeep http`.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { BaseClient } from "../src/client.js";
import { HistoryService } from "../src/gen/runekeep/v1/history_service_pb.js";
import { MemoryService } from "../src/gen/runekeep/v1/memory_service_pb.js";
import {
  Client,
  DeadlineExceededError,
  FailedPreconditionError,
  InvalidArgumentError,
  newRequestId,
  NotFoundError,
  UnavailableError,
  type MessageInput,
} from "../src/index.js";
import { address, all, newUser, ways } from "./server.js";

const SAID = "I am Edda, I live in Aarhus, and I drink black tea in the morning.";

async function write(client: BaseClient, topic: string, content: string): Promise<bigint> {
  const fields = { topic: { kind: { case: "stringValue", value: topic } }, content: { kind: { case: "stringValue", value: content } } } as const;
  const put = { memoryType: "preferences", fields };
  const response = await client.service(MemoryService).writeMemories({ changes: [{ change: { case: "put", value: put } }] });
  return response.revision;
}

for (const [way, open] of Object.entries(ways)) {
  describe(way, () => {
    it("returns messages with all kinds of parts as they were added", async () => {
      const session = open(newUser()).session("kettle");
      const createTime = new Date("2026-11-01T08:30:00.125Z");
      const messages: MessageInput[] = [
        { role: "user", content: SAID, createTime, speaker: "Edda", id: "first" },
        {
          role: "assistant",
          content: [
            { type: "text", text: "I put the kettle on." },
            { type: "image", url: "https://example.com/tea.jpg", detail: "low", caption: "A pot of tea." },
            { type: "context", uri: "viking://user/memories/profile.md", abstract: "Who the user is." },
            {
              type: "tool",
              toolId: "call-1",
              toolName: "kettle",
              skillName: "",
              input: { degrees: 95, slow: true },
              output: "boiling",
              status: "completed",
              durationMs: 1500,
              totalTokens: 12,
              storedOutputLength: 0,
            },
          ],
        },
      ];

      const added = await session.addMessages(messages);

      assert.deepEqual(added.messages.map(({ sequence }) => sequence), [1, 2]);
      assert.equal(added.liveMessageCount, 2);
      const [first, second] = await all(session.messages());
      assert.deepEqual(first?.content, [{ type: "text", text: SAID }]);
      assert.deepEqual([first?.id, first?.speaker, first?.createTime], ["first", "Edda", createTime]);
      assert.deepEqual(second?.content, messages[1]?.content);
      assert.equal((await session.info()).messageCount, 2);
      const context = await session.context();
      assert.deepEqual(context.live.map(({ id }) => id), [first?.id, second?.id]);
    });

    it("follows a commit to its end, and finds and recalls what it wrote", async () => {
      const client = open(newUser());
      const session = client.session();
      await session.addMessage("user", SAID);

      const commit = await session.commit();
      const updates = await all(client.watchTask(commit.taskId));
      const task = await session.wait();

      assert.deepEqual([commit.status, updates[0]?.kind, updates.at(-1)?.kind], ["accepted", "snapshot", "ended"]);
      const sequences = updates.flatMap((update) => ("sequence" in update ? [update.sequence] : []));
      assert.ok(sequences.length >= 2);
      assert.deepEqual(sequences, sequences.map((_, number) => number + 1));
      assert.deepEqual([task?.state, task?.result?.outcome, task?.pendingMemories], ["completed", "applied", 0]);
      assert.ok(task?.endTime instanceof Date);

      const found = await client.find("What does she drink in the morning?", { kinds: ["memory"], view: "full" });
      const best = found.results[0];
      assert.ok(best?.kind === "memory" && best.content.includes("tea") && best.score > 0);
      const memory = await client.getMemory(best.uri);
      assert.deepEqual([memory.version, memory.sources[0]?.sequence], [1, 1]);
      const recalled = await client.recall("What does she drink in the morning?", { tokenBudget: 300 });
      assert.match(recalled.text, /tea/);
      assert.ok(recalled.tokens > 0 && recalled.tokens <= 300);
      const archives = await all(session.archives());
      assert.deepEqual(archives.map(({ state, taskId }) => [state, taskId]), [["done", commit.taskId]]);
      assert.deepEqual((await all(client.listTasks({ states: ["completed"] }))).map(({ taskId }) => taskId), [commit.taskId]);
    });

    it("remembers and forgets, and a repeat with the same request id does nothing twice", async () => {
      const client = open(newUser());
      const requestId = newRequestId();

      const commit = await client.remember("I live in Lisbon.", { requestId });
      const again = await client.remember("I live in Lisbon.", { requestId });

      assert.deepEqual(again, commit);
      assert.equal((await client.waitTask(commit.taskId)).state, "completed");
      await write(client, "Coffee", "Likes coffee with oat milk.");
      const uri = "viking://user/memories/preferences/Coffee.md";
      const forgotten = await client.forget(uri, { requestId });
      assert.deepEqual(await client.forget(uri, { requestId }), forgotten);
      assert.ok(forgotten.deleted);
      await assert.rejects(client.forget(uri), NotFoundError);
    });

    it("throws errors with reason, field and resource", async () => {
      const client = open(newUser());
      const session = client.session("s");

      await assert.rejects(client.getSession("nobody"), (error) => {
        assert.ok(error instanceof NotFoundError);
        assert.deepEqual([error.code, error.reason], ["NOT_FOUND", "RESOURCE_NOT_FOUND"]);
        assert.deepEqual([error.resourceType, error.resource, error.retryable], ["session", "nobody", false]);
        return true;
      });
      await assert.rejects(session.addMessages([{ role: "user", content: [] }]), (error) => {
        assert.ok(error instanceof InvalidArgumentError);
        assert.deepEqual([error.reason, error.field], ["FIELD_INVALID", "messages[0].parts"]);
        return true;
      });
      const requestId = newRequestId();
      await session.addMessage("user", "one", { requestId });
      await assert.rejects(session.addMessage("user", "two", { requestId }), { reason: "REQUEST_ID_REUSED" });
      const { taskId } = await session.commit();
      await client.waitTask(taskId);
      await assert.rejects(client.cancelTask(taskId), FailedPreconditionError);
    });

    it("lists more than one page", async () => {
      const session = open(newUser()).session("long");
      for (let call = 0; call < 3; call += 1) {
        await session.addMessages(Array.from({ length: 100 }, (_, n) => ({ role: "user", content: `line ${call} ${n}` })));
      }

      const messages = await all(session.messages("all", { startSequence: 11 }));

      assert.deepEqual(messages.map(({ sequence }) => sequence), Array.from({ length: 290 }, (_, n) => n + 11));
    });

    it("changes a session", async () => {
      const client = open(newUser());
      const session = await client.createSession({ sessionId: "plan", autoCommit: { idleMs: 90_000, messageCount: 5 } });

      const changed = await session.update({ title: "Plans", memoryPolicy: { memoryTypes: { names: ["profile"] } } });

      assert.deepEqual([changed.title, changed.memoryPolicy?.memoryTypes?.names], ["Plans", ["profile"]]);
      assert.deepEqual([changed.autoCommit?.idleMs, changed.autoCommit?.messageCount], [90_000, 5]);
      assert.deepEqual((await all(client.listSessions())).map(({ sessionId }) => sessionId), ["plan"]);
      assert.equal((await session.used(["viking://user/memories/profile.md"], { uri: "viking://user/skills/tea", input: { a: 1 }, success: true })).skillsUsed, 1);
      assert.equal(await client.deleteSession("plan"), 0);
    });

    it("refuses a misspelt option and an unknown word", async () => {
      assert.throws(() => new Client({ usr: "tess" } as never), { name: "TypeError", message: /usr/ });
      const client = open(newUser());

      await assert.rejects(client.recall("tea", { budget: 50 } as object), /recall has no option "budget"/);
      await assert.rejects(client.find("tea", { view: "whole" } as object), /abstract, overview, full/);
    });

    it("ends a wait after its timeout, and with the reason of its signal", async () => {
      const client = open(newUser());
      const session = client.session();
      await session.addMessage("user", "Hello.");
      const { taskId } = await session.commit();
      await client.waitTask(taskId);
      const reason = new Error("the page was left");

      await assert.rejects(client.recall("tea", { timeoutMs: 0.01 }), DeadlineExceededError);
      await assert.rejects(client.recall("tea", { signal: AbortSignal.abort(reason) }), reason);
      const watching = new AbortController();
      await assert.rejects(async () => {
        for await (const update of client.watchTask(taskId, { signal: watching.signal })) {
          if (update.kind === "snapshot") watching.abort(reason);
        }
      }, reason);
    });

    it("calls every service of the contract", async () => {
      const client = open(newUser());
      const revision = await write(client, "Tea", "Likes green tea.");

      const listed = await client.service(HistoryService).listRevisions({});

      assert.deepEqual(listed.revisions.map(({ number }) => number), [revision]);
      await assert.rejects(client.service(HistoryService).listRevisions({ pageToken: "?" }), InvalidArgumentError);
    });
  });
}

describe("a server that is away", () => {
  it("is unavailable, with a reason to try again", async () => {
    const client = new Client({ address: "127.0.0.1:1", user: "anna", timeoutMs: 500 });

    await assert.rejects(client.recall("tea"), (error) => error instanceof UnavailableError && error.retryable);
  });

  it("is called again after close", async () => {
    const client = new Client({ address: address(), user: newUser() });
    await client.recall("tea");

    client.close();

    assert.equal((await client.recall("tea")).text, "");
  });
});
