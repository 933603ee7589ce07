// The middleware with the AI SDK itself and its scripted model, beside a real server.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { generateText, isStepCount, jsonSchema, Output, simulateReadableStream, streamText, tool, wrapLanguageModel } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { memoryMiddleware, type MemoryOptions } from "../src/ai-sdk.js";
import type { BaseClient } from "../src/client.js";
import { Client } from "../src/index.js";
import { MemoryService } from "../src/gen/runekeep/v1/memory_service_pb.js";
import { address, all, newUser } from "./server.js";

const QUESTION = "Which tea shall I plant?";
const MEMORY = "Likes green tea, grown in Japan.";
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 1, text: 1, reasoning: undefined },
};
type Content = Awaited<ReturnType<MockLanguageModelV4["doGenerate"]>>["content"];

function answers(...contents: Content[]): MockLanguageModelV4 {
  let call = 0;
  return new MockLanguageModelV4({
    doGenerate: async () => {
      const content = contents[Math.min(call++, contents.length - 1)]!;
      const unified = content.some(({ type }) => type === "tool-call") ? "tool-calls" : "stop";
      return { content, finishReason: { unified, raw: undefined }, usage, warnings: [] };
    },
  });
}

function streams(...pieces: string[]): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    doStream: async () => ({
      stream: simulateReadableStream({
        chunks: [
          { type: "text-start", id: "1" } as const,
          ...pieces.map((delta) => ({ type: "text-delta", id: "1", delta }) as const),
          { type: "text-end", id: "1" } as const,
          { type: "finish", finishReason: { unified: "stop", raw: undefined }, usage } as const,
        ],
      }),
    }),
  });
}

const text = (words: string): Content => [{ type: "text", text: words }];

function wrap(model: MockLanguageModelV4, options: MemoryOptions) {
  return wrapLanguageModel({ model, middleware: memoryMiddleware(options) });
}

/** A client of a user of whom something is known. */
async function known(): Promise<BaseClient> {
  const client = new Client({ address: address(), user: newUser() });
  const field = (value: string) => ({ kind: { case: "stringValue", value } }) as const;
  const put = (memoryType: string, fields: Record<string, ReturnType<typeof field>>) => ({ change: { case: "put", value: { memoryType, fields } } }) as const;
  const { revision } = await client.service(MemoryService).writeMemories({
    changes: [
      put("preferences", { topic: field("Tea"), content: field(MEMORY) }),
      put("profile", { content: field("Robin, a gardener in Lisbon.") }),
    ],
  });
  await client.find("tea", { minRevision: Number(revision) });
  return client;
}

async function saidIn(client: BaseClient, session: string): Promise<[string, string][]> {
  const messages = await all((await client.getSession(session)).messages("all"));
  return messages.map(({ role, content }) => [role, content.map((part) => (part.type === "text" ? part.text : "")).join()]);
}

describe("memoryMiddleware", () => {
  it("puts the stable part behind the instructions and the rest before the last words, and appends the turn", async () => {
    const client = await known();
    const model = answers(text("Green tea."));

    const { text: answer } = await generateText({
      model: wrap(model, { client, session: "garden" }),
      instructions: "You are a gardener.",
      prompt: QUESTION,
    });

    assert.equal(answer, "Green tea.");
    const prompt = model.doGenerateCalls[0]!.prompt;
    assert.equal(prompt.length, 2);
    const [system, user] = prompt;
    assert.ok(system?.role === "system" && user?.role === "user");
    assert.match(system.content, /^You are a gardener\.\n\n<runekeep-memory>[^]*Robin, a gardener in Lisbon\./);
    const parts = user.content.map((part) => (part.type === "text" ? part.text : ""));
    assert.equal(parts.length, 2);
    assert.match(parts[0]!, /^<runekeep-memory>[^]*grown in Japan[^]*<\/runekeep-memory>$/);
    assert.equal(parts[1], QUESTION);
    assert.deepEqual(await saidIn(client, "garden"), [["user", QUESTION], ["assistant", "Green tea."]]);
    const { autoCommit } = await (await client.getSession("garden")).info();
    assert.equal(autoCommit?.idleMs, 1_800_000);
  });

  it("appends a streamed answer, and a repeated request adds nothing twice", async () => {
    const client = await known();
    for (let repeat = 0; repeat < 2; repeat += 1) {
      const result = streamText({ model: wrap(streams("Green ", "tea."), { client, session: "a:b" }), prompt: QUESTION });
      assert.equal(await result.text, "Green tea.");
      await result.consumeStream();
    }

    const sessions = await all(client.listSessions());
    assert.equal(sessions.length, 1);
    assert.match(sessions[0]!.sessionId, /^session_[\da-f]{32}$/);
    assert.deepEqual(await saidIn(client, sessions[0]!.sessionId), [["user", QUESTION], ["assistant", "Green tea."]]);
  });

  it("appends a turn with a tool call once, without the call", async () => {
    const client = await known();
    const model = answers(
      [{ type: "tool-call", toolCallId: "1", toolName: "weather", input: '{"city":"Lisbon"}' }],
      text("Green tea, since it rains."),
    );
    const weather = tool({
      inputSchema: jsonSchema<{ city: string }>({ type: "object", properties: { city: { type: "string" } } }),
      execute: async () => "rain",
    });

    const history = [
      { role: "user", content: "Hello." },
      { role: "assistant", content: "Hello, Robin." },
      { role: "user", content: QUESTION },
    ] as const;
    await generateText({
      model: wrap(model, { client, session: "tools" }),
      messages: [...history],
      tools: { weather },
      stopWhen: isStepCount(3),
    });

    assert.equal(model.doGenerateCalls.length, 2);
    const said = await saidIn(client, "tools");
    assert.deepEqual(said, [["user", QUESTION], ["assistant", "Green tea, since it rains."]]);
  });

  it("leaves out an object that was asked for, and appends nothing without a session", async () => {
    const client = await known();
    const schema = jsonSchema<{ tea: string }>({ type: "object", properties: { tea: { type: "string" } } });
    const asked = { prompt: QUESTION, output: Output.object({ schema }) };

    await generateText({ model: wrap(answers(text('{"tea":"green"}')), { client, session: "object" }), ...asked });
    await generateText({ model: wrap(answers(text('{"tea":"green"}')), { client }), ...asked });

    assert.deepEqual((await all(client.listSessions())).map(({ sessionId }) => sessionId), ["object"]);
    assert.deepEqual(await saidIn(client, "object"), [["user", QUESTION]]);
  });

  it("gives the append to waitUntil", async () => {
    const client = await known();
    const appends: Promise<void>[] = [];
    const waitUntil = (append: Promise<void>) => void appends.push(append);

    await generateText({ model: wrap(answers(text("Mint.")), { client, session: "later", waitUntil }), prompt: QUESTION });

    assert.equal(appends.length, 1);
    await appends[0];
    assert.equal((await saidIn(client, "later")).length, 2);
  });

  it("reaches the model while memory is away", async () => {
    const client = new Client({ address: "127.0.0.1:1", user: "robin", timeoutMs: 200 });
    const warnings: string[] = [];
    const model = answers(text("Mint."));

    const warn = (message: string) => void warnings.push(message);
    const { text: answer } = await generateText({ model: wrap(model, { client, session: "away", warn }), prompt: QUESTION });

    assert.equal(answer, "Mint.");
    assert.deepEqual(model.doGenerateCalls[0]!.prompt.map(({ content }) => content), [[{ type: "text", text: QUESTION }]]);
    assert.deepEqual(warnings, ["runekeep: no memory: UNAVAILABLE", "runekeep: a turn was not appended: UNAVAILABLE"]);
  });

  it("passes on the error of the model, and appends nothing then", async () => {
    const client = await known();
    const model = new MockLanguageModelV4({
      doGenerate: async () => {
        throw new Error("no model");
      },
    });

    await assert.rejects(generateText({ model: wrap(model, { client, session: "failed" }), prompt: QUESTION, maxRetries: 0 }), /no model/);
    assert.deepEqual(await all(client.listSessions()), []);
  });
});
