// What tests/languages/test_typescript.py calls in a page of a real browser, on another origin than `runekeep http`.
import { Client, NotFoundError } from "../src/web.js";

async function converse(baseUrl: string): Promise<object> {
  const client = new Client({ baseUrl, user: "browser" });
  const session = client.session("page");
  await session.addMessage("user", "I live in Porto and drink green tea.");
  const { taskId } = await session.commit();
  const kinds: string[] = [];
  for await (const update of client.watchTask(taskId)) kinds.push(update.kind);
  const task = await client.waitTask(taskId);
  const { text } = await client.recall("Where do I live?");
  const reason = await client.getSession("nobody").catch((error: unknown) => (error as NotFoundError).reason);
  return { kinds, state: task.state, text, reason };
}

async function refused(baseUrl: string): Promise<string> {
  const client = new Client({ baseUrl, user: "browser", timeoutMs: 500 });
  return await client.recall("tea").then(
    () => "allowed",
    (error: unknown) => String(error),
  );
}

Object.assign(globalThis, { converse, refused });
