"""request_id on every mutation: one effect, and the first answer for all who ask again.

The mutations are found in the contract, so that one that is added later must have its case here.
"""

import ast
import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from runekeep.v1 import session_service_pb2, task_service_pb2
from tests.integration.conftest import Callers
from tests.integration.rpc.mutation_cases import CASES, METHODS, MUTATIONS, OF_WORKERS, changed, has_request_id, send
from tests.support.callers import Caller, failure, unique
from tests.support.postgres import PostgresServer
from tests.support.server_process import ROOT, ServerProcess

TASK = task_service_pb2
READS = ("Get", "List", "Load", "Find", "Diff", "Read", "Glob", "Grep", "Watch", "Export", "Explain", "Ask")
"""How the name of a method begins that changes nothing."""


class Rows:
    """What the store holds of callers, read beside the server. Left out is what the server does later by itself."""

    TABLES = (
        "accounts", "spaces", "sessions", "messages", "tool_outputs", "usages", "recalled", "archives", "tasks",
        "task_events", "jobs", "commits", "memories", "active_counts", "requests", "turns", "turn_artifacts",
        "turn_tags", "proposals",
    )  # fmt: skip
    LATER = ("passages_indexed", "index", "checked", "outbox")
    """Beginnings of columns in which the relay notes how far it is."""

    def __init__(self, server: ServerProcess) -> None:
        self._path = server.data_dir / "runekeep.db"

    def of(self, caller: Caller) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of the caller's space, by table."""
        found = {}
        store = sqlite3.connect(self._path)
        try:
            store.execute("BEGIN")
            for table in self.TABLES:
                columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
                kept = ", ".join(name for name in columns if not name.startswith(self.LATER))
                where = "account = ?1 AND user_id = ?2" if "user_id" in columns else "account = ?1 AND ?2 = ?2"
                rows = store.execute(f"SELECT {kept} FROM {table} WHERE {where}", (caller.account, caller.user))
                found[table] = sorted(rows.fetchall(), key=repr)
        finally:
            store.close()
        return found

    def counts(self, caller: Caller) -> dict[str, int]:
        return {table: len(rows) for table, rows in self.of(caller).items()}


@pytest.fixture
def rows(server: ServerProcess) -> Rows:
    return Rows(server)


@asynccontextmanager
async def channels(server: ServerProcess, number: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(grpc.aio.insecure_channel(server.address)) for _ in range(number)]


def test_what_changes_something_and_has_no_request_id_is_the_work_of_workers() -> None:
    """Theirs is fenced by leases instead. An import has its id in the first message of its stream, see test_export; an
    append of a stream has one of its own, see test_append_streams."""
    without = {name for name, method in METHODS.items() if not has_request_id(method)}
    assert {name for name in without if not name.startswith(READS)} == {
        *(name for name in OF_WORKERS if not name.startswith(READS)),
        "ImportSpace",
        "StreamMessages",
    }
    assert not OF_WORKERS & set(MUTATIONS)
    assert not [name for name in MUTATIONS if name.startswith(READS)]
    assert set(CASES) == set(MUTATIONS), "every mutation has its case here"


def test_every_write_of_a_service_goes_through_its_request_id() -> None:
    """But for GetSession, which is asked to make the session where it is not there: once more is no harm. And for keys,
    whose answers hold secrets that may not be kept, see tests of AdminService."""
    writes = set()
    for file in sorted((ROOT / "server" / "runekeep_server").glob("*/service.py")):
        if file.parent.name == "extraction":
            continue
        for node in ast.walk(ast.parse(Path(file).read_text())):
            if isinstance(node, ast.AsyncFunctionDef) and any(
                isinstance(part, ast.Attribute)
                and part.attr in ("write", "write_in_account", "write_global")
                and "database" in ast.unparse(part.value)
                for part in ast.walk(node)
            ):
                writes.add(node.name)
    assert writes == {"GetSession", "CreateApiKey", "RotateApiKey", "RevokeApiKey"}


@pytest.mark.parametrize("method", MUTATIONS)
async def test_the_same_request_again_gives_the_same_answer_and_changes_nothing(
    method: str, caller: Caller, rows: Rows
) -> None:
    request = await CASES[method].prepare(caller)
    before = rows.of(caller)
    first = await send(caller, method, request, "r-1")
    after = rows.of(caller)
    assert after != before
    for _ in range(2):
        assert await send(caller, method, request, "r-1") == first
    assert await asyncio.gather(*(send(caller, method, request, "r-1") for _ in range(10))) == [first] * 10
    assert rows.of(caller) == after


@pytest.mark.parametrize("method", MUTATIONS)
async def test_ten_at_once_have_the_effect_of_one(
    method: str, callers: Callers, server: ServerProcess, rows: Rows
) -> None:
    one, ten = callers(), callers()
    await send(one, method, await CASES[method].prepare(one), "r-1")
    request = await CASES[method].prepare(ten)
    async with channels(server, 5) as several:
        same = [Caller(channel, ten.user, ten.account) for channel in several * 2]
        answers = await asyncio.gather(*(send(caller, method, request, "r-1") for caller in same))
    assert answers == [answers[0]] * 10
    assert rows.counts(ten) == rows.counts(one)


@pytest.mark.parametrize("method", MUTATIONS)
async def test_what_happened_since_changes_nothing_of_the_answer(method: str, caller: Caller, rows: Rows) -> None:
    request = await CASES[method].prepare(caller)
    first = await send(caller, method, request, "r-1")
    await CASES[method].move_on(caller, first)
    after = rows.of(caller)
    assert await send(caller, method, request, "r-1") == first
    assert rows.of(caller) == after


@pytest.mark.parametrize("method", [name for name in MUTATIONS if CASES[name].other])
async def test_another_body_under_the_same_id_is_refused(method: str, caller: Caller, rows: Rows) -> None:
    case = CASES[method]
    assert case.other is not None
    request = await case.prepare(caller)
    first = await send(caller, method, request, "r-1")
    after = rows.of(caller)
    failed = await failure(send(caller, method, case.other(request), "r-1"))
    assert failed.seen == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    assert rows.of(caller) == after
    assert await send(caller, method, request, "r-1") == first


@pytest.mark.parametrize("method", [name for name in MUTATIONS if CASES[name].other])
async def test_of_two_bodies_at_once_one_is_done_and_the_other_refused(method: str, caller: Caller) -> None:
    case = CASES[method]
    assert case.other is not None
    request = await case.prepare(caller)
    if method == "RetryTask":
        # Both must be such that they could be done.
        await caller.committed()
        (other,) = (await caller.tasks.ListTasks(TASK.ListTasksRequest(states=[TASK.TASK_STATE_PENDING]))).tasks
        await caller.tasks.CancelTask(TASK.CancelTaskRequest(task_id=other.task_id))
        bodies = [request, changed(request, task_id=other.task_id)]
    else:
        bodies = [request, case.other(request)]
    calls = [send(caller, method, body, "r-1") for body in bodies * 5]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes]
    assert refused in ([False, True] * 5, [True, False] * 5)
    done = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert done == [done[0]] * 5


@pytest.mark.parametrize("method", MUTATIONS)
async def test_an_id_belongs_to_its_user_and_its_method(method: str, callers: Callers, rows: Rows) -> None:
    one, other = callers(), callers()
    await send(one, method, await CASES[method].prepare(one), "r-1")
    mine = rows.of(one)
    await send(other, method, await CASES[method].prepare(other), "r-1")
    assert rows.counts(other) == rows.counts(one) and rows.of(one) == mine
    # A user of the same name in another account is another user, too.
    namesake = callers(one.user)
    await send(namesake, method, await CASES[method].prepare(namesake), "r-1")
    assert rows.counts(namesake) == rows.counts(one) and rows.of(one) == mine

    if method != "CreateSession":
        message = session_service_pb2.CreateSessionRequest(session_id="of-another-method")
        made = await send(one, "CreateSession", message, "r-1")
        assert made.session.session_id == "of-another-method"


@pytest.mark.parametrize("method", [name for name in MUTATIONS if CASES[name].impossible])
async def test_an_error_is_not_kept(method: str, caller: Caller) -> None:
    case = CASES[method]
    assert case.impossible is not None and case.mend is not None
    request = await case.impossible(caller)
    for _ in range(2):
        await failure(send(caller, method, request, "r-1"))
    await case.mend(caller, request)
    answer = await send(caller, method, request, "r-1")
    assert await send(caller, method, request, "r-1") == answer


OF_A_SESSION = sorted(
    {name for name in MUTATIONS if {"session", "bucket"} & set(METHODS[name].input_type.fields_by_name)}
    - {"DeleteSession", "EraseData"}
    | {"CreateSession"}
)


@pytest.mark.parametrize("method", OF_A_SESSION)
async def test_an_answer_goes_with_its_session(method: str, caller: Caller, server: ServerProcess) -> None:
    """Whoever knows an old id is told nothing of what was said there, nor does the call do its work a second time, in a
    session that has the name now."""
    request: Any = await CASES[method].prepare(caller)
    if method == "CreateSession":
        request.session_id = "s"
    await send(caller, method, request, "r-1")
    deletion = session_service_pb2.DeleteSessionRequest(session="s", request_id="r-2")
    deleted = await caller.sessions.DeleteSession(deletion)

    for anew in (False, True):
        if anew:
            await caller.session(session_id="s")
        failed = await failure(send(caller, method, request, "r-1"))
        assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and "request" in failed.message, failed
    assert await caller.sessions.DeleteSession(deletion) == deleted
    store = sqlite3.connect(server.data_dir / "runekeep.db")
    try:
        kept = store.execute(
            "SELECT method FROM requests WHERE account = ? AND user_id = ? AND length(response) > 0",
            (caller.account, caller.user),
        ).fetchall()
    finally:
        store.close()
    assert (method,) not in kept


async def test_a_server_that_was_killed_knows_its_answers_when_it_is_back(own_server: Callable[..., Any]) -> None:
    server: ServerProcess = own_server()
    rows = Rows(server)
    users = {method: unique("user") for method in MUTATIONS}
    asked: dict[str, Message] = {}
    async with grpc.aio.insecure_channel(server.address) as channel:
        callers = {method: Caller(channel, user, account=method) for method, user in users.items()}
        for method, caller in callers.items():
            asked[method] = await CASES[method].prepare(caller)
        first = {method: await send(caller, method, asked[method], "r-1") for method, caller in callers.items()}
        after = {method: rows.of(caller) for method, caller in callers.items()}
        server.kill()
    server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        callers = {method: Caller(channel, user, account=method) for method, user in users.items()}
        for method, caller in callers.items():
            assert await send(caller, method, asked[method], "r-1") == first[method]
            assert rows.of(caller) == after[method]
            other = CASES[method].other
            if other is not None:
                failed = await failure(send(caller, method, other(asked[method]), "r-1"))
                assert failed.seen == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    server.stop()


async def test_a_request_that_goes_to_two_servers_at_once_is_done_once(
    own_server: Callable[..., Any], postgres_server: PostgresServer, index_url: str, tmp_path: Path
) -> None:
    """As by a client that gave up waiting for the one: on PostgreSQL, where each server has its own transactions."""
    name = postgres_server.create()
    environment = {
        "RUNEKEEP_STORE_URL": postgres_server.url(name),
        "RUNEKEEP_INDEX_URL": index_url,
        "RUNEKEEP_BLOB_DIR": str(tmp_path / "blobs"),
    }
    servers: list[ServerProcess] = [own_server(environment, data) for data in ("first", "second")]
    async with AsyncExitStack() as stack:
        several = [await stack.enter_async_context(grpc.aio.insecure_channel(one.address)) for one in servers]
        for method in MUTATIONS:
            user = unique("user")
            same = [Caller(channel, user, account=method) for channel in several]
            request = await CASES[method].prepare(same[0])
            answers = await asyncio.gather(*(send(caller, method, request, "r-1") for caller in same * 4))
            assert answers == [answers[0]] * 8
            other = CASES[method].other
            if other is not None:
                failed = await failure(send(same[1], method, other(request), "r-1"))
                assert failed.seen == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    for server in servers:
        server.stop()
    postgres_server.drop(name)
