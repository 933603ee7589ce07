// Repeats and the watch, against doubles of services: a real server cannot be made to fail at a given moment.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Code, ConnectError, createRouterTransport, type ConnectRouter } from "@connectrpc/connect";
import { BaseClient } from "../src/client.js";
import { AbortedError, Client, NotFoundError, UnavailableError } from "../src/index.js";
import { Client as WebClient } from "../src/web.js";
import { RetryInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { SessionService } from "../src/gen/runekeep/v1/session_service_pb.js";
import { TaskService, TaskState } from "../src/gen/runekeep/v1/task_service_pb.js";
import { all } from "./server.js";

function clientOf(routes: (router: ConnectRouter) => void): BaseClient {
  return new BaseClient(createRouterTransport(routes), {});
}

describe("a call that fails", () => {
  it("is repeated with the same request id while the server is away", async () => {
    const ids: string[] = [];
    const client = clientOf(({ rpc }) => {
      rpc(SessionService.method.deleteSession, ({ requestId }) => {
        ids.push(requestId);
        if (ids.length === 1) throw new ConnectError("away", Code.Unavailable);
        if (ids.length === 2) throw new ConnectError("stopping", Code.Canceled);
        return { cancelledTasks: 2n };
      });
    });

    assert.equal(await client.deleteSession("s"), 2);
    assert.equal(ids.length, 3);
    assert.match(ids[0]!, /^[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
    assert.deepEqual(new Set(ids).size, 1);
  });

  it("is given up after six attempts", async () => {
    let calls = 0;
    const client = clientOf(({ rpc }) => {
      rpc(SessionService.method.deleteSession, () => {
        calls += 1;
        throw new ConnectError("away", Code.Unavailable);
      });
    });

    await assert.rejects(client.deleteSession("s"), UnavailableError);
    assert.equal(calls, 6);
  });

  it("is not repeated when the server would wait longer than the deadline", async () => {
    let calls = 0;
    const client = clientOf(({ rpc }) => {
      rpc(SessionService.method.deleteSession, () => {
        calls += 1;
        const retryDelay = { seconds: 60n, nanos: 500_000_000 };
        throw new ConnectError("busy", Code.Unavailable, undefined, [{ desc: RetryInfoSchema, value: { retryDelay } }]);
      });
    });

    await assert.rejects(client.deleteSession("s"), { name: "UnavailableError", retryAfterMs: 60_500 });
    assert.equal(calls, 1);
  });

  it("is not repeated for other errors", async () => {
    let calls = 0;
    const client = clientOf(({ rpc }) => {
      rpc(SessionService.method.deleteSession, () => {
        calls += 1;
        throw new ConnectError("no", calls === 1 ? Code.NotFound : Code.Aborted);
      });
    });

    await assert.rejects(client.deleteSession("s"), NotFoundError);
    await assert.rejects(client.deleteSession("s"), AbortedError);
    assert.equal(calls, 2);
  });
});

describe("a watch", () => {
  function task(state: TaskState) {
    return { taskId: "t", state };
  }

  function event(sequence: bigint) {
    return { update: { case: "event", value: { sequence, event: { case: "stateChange", value: TaskState.RUNNING } } } } as const;
  }

  it("resumes after the last event, and yields each once and the snapshot once", async () => {
    const after: bigint[] = [];
    const client = clientOf(({ rpc }) => {
      rpc(TaskService.method.watchTask, async function* ({ afterSequence }) {
        after.push(afterSequence);
        yield { update: { case: "snapshot", value: task(TaskState.PENDING) } };
        yield {};
        if (after.length === 1) {
          yield event(1n);
          yield event(2n);
          throw new ConnectError("broken", Code.Unavailable);
        }
        yield event(2n);
        yield event(3n);
        if (after.length === 2) return;
        yield { update: { case: "ended", value: task(TaskState.COMPLETED) } };
      });
    });

    const updates = await all(client.watchTask("t"));

    assert.deepEqual(after, [0n, 2n, 3n]);
    const seen = updates.map((update) => ("sequence" in update ? update.sequence : update.kind));
    assert.deepEqual(seen, ["snapshot", 1, 2, 3, "ended"]);
  });

  it("resumes when the server falls silent", async (context) => {
    const after: bigint[] = [];
    let fallSilent = () => {};
    const silent = new Promise<void>((resolve) => (fallSilent = resolve));
    const client = clientOf(({ rpc }) => {
      rpc(TaskService.method.watchTask, async function* ({ afterSequence }, { signal }) {
        after.push(afterSequence);
        if (after.length === 1) {
          yield event(1n);
          setImmediate(fallSilent);
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          return;
        }
        yield { update: { case: "ended", value: task(TaskState.COMPLETED) } };
      });
    });
    context.mock.timers.enable({ apis: ["setTimeout"] });

    const watching = all(client.watchTask("t"));
    await silent;
    // First the silence, then the pause before the next stream.
    let updates: unknown[] | undefined;
    void watching.then((found) => (updates = found));
    for (let turn = 0; updates === undefined && turn < 50; turn += 1) {
      context.mock.timers.tick(turn === 0 ? 45_000 : 200);
      await new Promise(setImmediate);
    }

    assert.deepEqual(after, [0n, 1n]);
    assert.equal((await watching).length, 2);
  });

  it("throws other errors at once", async () => {
    let calls = 0;
    const client = clientOf(({ rpc }) => {
      rpc(TaskService.method.watchTask, async function* () {
        calls += 1;
        yield {};
        throw new ConnectError("no task", Code.NotFound);
      });
    });

    await assert.rejects(all(client.watchTask("t")), NotFoundError);
    assert.equal(calls, 1);
  });
});

describe("an address", () => {
  for (const [address, words] of [
    ["nonsense", /host:port/],
    ["http://127.0.0.1:1/path", /host:port/],
    ["example.com:7433", /plain text/],
  ] as const) {
    it(`is refused: ${address}`, () => {
      assert.throws(() => new Client({ address, apiKey: "rk_any" }), words);
    });
  }

  it("is refused when files do not go together", () => {
    assert.throws(() => new Client({ address: "https://example.com", certFile: "a.pem" }), /keyFile/);
    assert.throws(() => new Client({ address: "https://example.com", caFile: "/none.pem" }), /none.pem/);
    assert.throws(() => new WebClient({ baseUrl: "http://example.com", apiKey: "rk_any" }), /plain text/);
  });
});
