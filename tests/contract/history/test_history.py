"""What becomes of a rollback while its memories move, of what was erased, and how much a diff reads; on both stores."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from runekeep.v1 import history_service_pb2 as pb
from runekeep.v1 import memory_service_pb2 as memories_pb
from runekeep.v1.common_pb2 import ERROR_REASON_VERSION_MISMATCH
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.history import rollback, service
from runekeep_server.history.service import HistoryService
from runekeep_server.identity import development_caller, enter_principal, new_trace
from runekeep_server.memories import direct_writes
from runekeep_server.protocol.answer_sizes import MAX_PAGE_BYTES
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.idempotency import MAX_PREPARATIONS
from runekeep_server.settings import Settings
from runekeep_storage.database import Database, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.erasure import memories as erased_memories
from runekeep_storage.errors import NotFound, VersionConflict
from runekeep_storage.history import history, rollbacks
from runekeep_storage.index.base import VectorSpace
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.memories import memories
from runekeep_storage.relay.relay import Relay
from runekeep_storage.store import Store
from tests.support.changes import put, remove
from tests.support.storage.databases import ANN, BOB
from tests.support.storage.query_costs import Cost, Measured, assert_as_cheap
from tests.support.storage.search import Search

pytestmark = pytest.mark.postgres_long

TEA = "viking://user/ann/memories/preferences/Tea.md"
BREAD = "viking://user/ann/memories/preferences/Bread.md"


@dataclass
class Parts:
    """Of a store, what a write by hand and a rollback need."""

    database: Database
    registry: Registry
    embedders: SpaceEmbedders
    relay: Relay
    attachment: Attachment

    async def write(self, *changes: memories_pb.MemoryMutation) -> memories_pb.WriteMemoriesResponse:
        request = memories_pb.WriteMemoriesRequest(changes=changes)
        return await direct_writes.write(cast(Store, self), ANN, request, withhold_secrets=True)

    async def roll_back(self, revision: int, **fields: Any) -> pb.RollbackRevisionResponse:
        request = pb.RollbackRevisionRequest(revision=revision, **fields)
        return await rollback.roll_back(cast(Store, self), ANN, request, MAX_PAGE_BYTES)

    async def call(self, method: str, request: Any) -> Any:
        enter_principal(
            development_caller((("x-runekeep-account", ANN.account), ("x-runekeep-user", ANN.user)), new_trace())
        )
        return await getattr(HistoryService(cast(Store, self), Settings()), method)(request, cast(Any, None))


@pytest.fixture
def store(search: Search, registry: Registry) -> Parts:
    return Parts(search.database, registry, search.embedders, search.relay, search.attachment)


@dataclass
class Meddled:
    """A database in which something happens behind each of the first reads; `meddle` gets their number."""

    database: Database
    meddle: Callable[[int], Awaitable[Any]]
    times: int
    reads: int = field(default=0, init=False)

    async def read(self, *arguments: Any, **named: Any) -> Any:
        answer = await self.database.read(*arguments, **named)
        self.reads += 1
        if self.reads <= self.times:
            await self.meddle(self.reads)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def meddled(store: Parts, meddle: Callable[[int], Awaitable[Any]], times: int = 1) -> Parts:
    database = cast(Database, Meddled(store.database, meddle, times))
    return Parts(database, store.registry, store.embedders, store.relay, store.attachment)


def tea(content: str, base: int = 0) -> memories_pb.MemoryMutation:
    return put("preferences", base, topic="Tea", content=content)


def bread(content: str, base: int = 0) -> memories_pb.MemoryMutation:
    return put("preferences", base, topic="Bread", content=content)


async def content(store: Parts, uri: str = TEA) -> str | None:
    try:
        return (await store.database.read(memories.get, ANN, uri)).content
    except NotFound:
        return None


async def test_what_is_written_between_look_and_rollback_is_a_conflict(store: Parts) -> None:
    await store.write(tea("one"))
    await store.write(tea("two", 1))
    with pytest.raises(ApiError, match="was changed after revision 2"):
        await meddled(store, lambda _: store.write(tea("three", 2))).roll_back(2)
    assert await content(store) == "three"


async def test_what_was_as_before_is_held_to_it(store: Parts) -> None:
    """The one memory needs nothing when it is looked at, and something when the other is written."""
    await store.write(tea("one"), bread("Rye."))
    await store.write(tea("two", 1), bread("Wheat.", 1))
    await store.write(tea("one", 2))
    answer = await meddled(store, lambda _: store.write(tea("two", 3))).roll_back(2)
    assert answer.revision == 5 and len(answer.changes) == 2
    assert (await content(store), await content(store, BREAD)) == ("one", "Rye.")


async def test_nothing_to_do_is_not_said_of_what_has_moved(store: Parts) -> None:
    await store.write(tea("one"))
    await store.write(tea("two", 1))
    await store.write(tea("one", 2))
    answer = await meddled(store, lambda _: store.write(tea("two", 3))).roll_back(2)
    assert answer.revision == 5 and await content(store) == "one"


async def test_memories_that_never_rest_are_given_up(store: Parts) -> None:
    await store.write(tea("one"))
    await store.write(tea("two", 1))

    async def there_and_back(read: int) -> None:
        base = 2 * read
        await store.write(tea("three", base))
        await store.write(tea("two", base + 1))

    with pytest.raises(VersionConflict):
        await meddled(store, there_and_back, MAX_PREPARATIONS).roll_back(2)
    assert await content(store) == "two"


async def test_one_that_moves_and_rests_is_rolled_back(store: Parts) -> None:
    await store.write(tea("one"))
    await store.write(tea("two", 1))

    async def there_and_back(read: int) -> None:
        await store.write(tea("three", 2))
        await store.write(tea("two", 3))

    assert (await meddled(store, there_and_back).roll_back(2)).revision == 5
    assert await content(store) == "one"


async def test_vectors_of_another_embedder_are_made_anew(store: Parts, search: Search) -> None:
    await store.write(tea("one"))
    await store.write(tea("two", 1))
    store.attachment = Attachment(search.database, search.index, VectorSpace("another", 3))
    await store.roll_back(2)

    async def model(tx: Tx) -> tuple[str, bool]:
        row = await tx.fetchrow(
            "SELECT dense_model, dense FROM memories WHERE account = $1 AND rev_to = 0", ANN.account
        )
        return row["dense_model"], row["dense"] is None

    assert await store.database.read_global(model) == ("", True)
    search.relay.start()

    async def embedded() -> bool:
        return await store.database.read_global(model) == (search.embedder.model, False)

    await search.until(embedded)


async def erase(store: Parts, uri: str, first: int) -> erased_memories.TakenBack:
    return await store.database.write(erased_memories.take_back, ANN, {uri: first})


async def test_an_erasure_is_not_taken_back(store: Parts) -> None:
    await store.write(tea("one"), bread("Rye."))
    await store.write(tea("secret", 1))
    erased = await erase(store, TEA, 2)
    assert erased.revision == 3 and await content(store) == "one"
    for force in (False, True):
        with pytest.raises(ApiError, match="Revision 3 is an erasure") as caught:
            await store.roll_back(3, force=force)
        assert caught.value.code.name == "FAILED_PRECONDITION"
    listed = (await store.call("ListRevisions", pb.ListRevisionsRequest())).revisions
    assert [(one.number, one.origin == pb.REVISION_ORIGIN_ERASURE) for one in listed] == [
        (3, True), (2, False), (1, False),
    ]  # fmt: skip


async def test_erased_versions_are_no_part_of_a_rollback(store: Parts) -> None:
    await store.write(tea("one"), bread("Rye."))
    await store.write(tea("secret", 1), bread("Wheat.", 1))
    await erase(store, TEA, 2)
    answer = await store.roll_back(2)
    assert [one.uri for one in answer.changes] == [BREAD]
    assert (await content(store), await content(store, BREAD)) == ("one", "Rye.")
    # The erasure made a version of it, which says what the first revision did.
    assert [one.after for one in (await store.roll_back(1)).changes] == ["", ""]


async def test_a_diff_over_an_erasure_still_leads_from_one_state_to_the_other(store: Parts) -> None:
    """A memory that was deleted and of which the later versions were erased ends without a version that ends it."""
    await store.write(tea("one"), bread("Rye."))
    await store.write(tea("secret", 1))
    await store.write(remove(TEA, 2))
    await erase(store, TEA, 2)
    request = pb.DiffRevisionsRequest(**{"from": {"revision": 1}})  # type: ignore[arg-type]  # no word for an argument
    (change,) = (await store.call("DiffRevisions", request)).changes
    assert (change.uri, change.before, change.after, change.version) == (TEA, "one", "", 0)


def of_memories(cost: Cost) -> set[str]:
    """How SQLite finds its memories: `uri=?`, or the bounds of what it reads; each statement's way once."""
    ways = set()
    for plan in cost.plans:
        if re.match(r"(SEARCH|SCAN) (memories|m|n|b)\b", plan):
            key = plan.partition("(account=? AND user_id=? AND ")[2].rstrip(")")
            ways.add("uri=?" if "uri=?" in key else key or plan)
    return ways


@pytest.mark.parametrize("analyzed", [False, True])
async def test_no_call_reads_the_whole_space(store: Parts, analyzed: bool) -> None:
    if not isinstance(store.database, SqliteDatabase):
        pytest.skip("the plans of PostgreSQL come from what it has counted")
    for topic in range(40):
        uri = f"viking://user/ann/memories/preferences/t{topic:02d}.md"
        for base in range(4):
            await store.write(put("preferences", base, topic=f"t{topic:02d}", content=f"version {base}"))
        if topic % 10 == 0:
            await store.write(remove(uri, 4))
    below, one = "viking://user/ann/memories", "viking://user/ann/memories/preferences/t07.md"
    later = 160
    between = {"rev_from>? AND rev_from<?", "rev_to>? AND rev_to<?"}
    current = "rev_to=? AND uri>? AND uri<?"
    # `uri=?`: of these memories alone. Others are read between two revisions, or in the order of their key, or as
    # current versions; never from a revision on, or until one.
    wanted: dict[str, tuple[Callable[..., Awaitable[Any]], tuple[Any, ...], set[str]]] = {
        "diff": (service._compared, (80, later, "", "", 2**30), {*between, "uri=?"}),
        "diff below": (service._compared, (80, later, below, "", 2**30), {*between, "uri=?"}),
        "diff behind": (service._compared, (80, later, below, one, 2**30), {*between, "uri=?"}),
        "diff of all": (service._compared, (0, later, "", "", 2**30), {"uri>? AND uri<?", "uri=?"}),
        "diff of all below": (service._compared, (0, later, below, "", 2**30), {"uri>? AND uri<?", "uri=?"}),
        "diff of one": (service._compared, (1, later, one, "", 2**30), {"uri=?"}),
        "diff of all of one": (service._compared, (0, later, one, "", 2**30), {"uri=?"}),
        "page": (history.page, (later, 10), {"rev_from=?", "rev_to=?", "uri=?"}),
        "page of one": (history.page, (later, 10, one), {"rev_from=?", "rev_to=?", "uri=?"}),
        "rollback": (rollbacks.touched_by, (80,), {"rev_from=?", "rev_to=?", "uri=?"}),
        "listing": (memories.listing, (below,), {current, "uri=?"}),
        "files": (memories.files, ([one, TEA],), {"uri=?"}),
    }

    async def work(tx: Tx) -> dict[str, set[str]]:
        if analyzed:
            await tx.execute("ANALYZE")
        found = {}
        for name, (call, arguments, _) in wanted.items():
            cost = Cost()
            await call(cast(Tx, Measured(tx, cost)), ANN, *arguments)
            found[name] = of_memories(cost)
        return found

    # On the connection that has counted: others learn of it later.
    found = await store.database.write_global(work)
    assert {name: ways - wanted[name][2] for name, ways in found.items() if ways - wanted[name][2]} == {}
    assert all(found.values())


async def test_what_is_there_now_costs_no_more_for_what_was(store: Parts) -> None:
    if not isinstance(store.database, SqliteDatabase):
        pytest.skip("PostgreSQL reads a table that is small from end to end")
    topics = [f"t{number}" for number in range(10)]
    uris = [f"viking://user/ann/memories/preferences/{topic}.md" for topic in topics]

    async def look(tx: Tx, call: Callable[..., Awaitable[Any]], what: Any) -> Cost:
        cost = Cost()
        assert len(await call(cast(Tx, Measured(tx, cost)), ANN, what)) == len(topics)
        return cost

    costs: list[tuple[Cost, Cost]] = []
    for base in range(40):
        await store.write(*(put("preferences", base, topic=topic, content=f"version {base}") for topic in topics))
        if base in (0, 39):
            listed = await store.database.read_global(look, memories.listing, "viking://user/ann/memories")
            costs.append((listed, await store.database.read_global(look, memories.files, uris)))
    for few, many in zip(*costs, strict=True):
        assert_as_cheap(few, many)


async def test_a_diff_without_any_difference_ends_its_calls(store: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was changed and changed back is looked at a bounded number of times in one call."""
    monkeypatch.setattr(service, "BATCH", 2)
    monkeypatch.setattr(service, "BATCHES", 2)
    topics = [f"t{number:02d}" for number in range(10)]
    for base, said in enumerate(("one", "two", "one")):
        await store.write(*(put("preferences", base, topic=topic, content=said) for topic in topics))
    await store.write(put("preferences", 3, topic="t09", content="three"))
    request = pb.DiffRevisionsRequest(page_size=1, **{"from": {"revision": 1}})  # type: ignore[arg-type]  # as above
    pages = []
    for _ in range(5):
        page = await store.call("DiffRevisions", request)
        pages.append([one.after for one in page.changes])
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    # Ten memories by four: two calls without any, and the one that comes to the last of them.
    assert pages[:3] == [[], [], ["three"]] and not any(pages[3:]) and not request.page_token


async def test_what_an_erasure_left_is_counted_as_a_diff_says_it(store: Parts) -> None:
    await store.write(tea("one"), bread("Rye."))
    await store.write(tea("secret", 1), bread("Wheat.", 1))
    await erase(store, TEA, 2)
    listed = (await store.call("ListRevisions", pb.ListRevisionsRequest())).revisions
    assert [(one.number, one.adds, one.updates, one.deletes) for one in listed] == [
        (3, 1, 0, 0),
        (2, 0, 1, 1),
        (1, 2, 0, 0),
    ]
    of_tea = (await store.call("ListRevisions", pb.ListRevisionsRequest(uri=TEA))).revisions
    assert [one.number for one in of_tea] == [3, 2, 1]
    await erase(store, BREAD, 1)
    newest = (await store.call("ListRevisions", pb.ListRevisionsRequest(page_size=1))).revisions[0]
    # Nothing is left of it that could be counted.
    assert (newest.number, newest.adds, newest.updates, newest.deletes) == (4, 0, 0, 0)
    assert newest.origin == pb.REVISION_ORIGIN_ERASURE


def of_memory(number: int, size: int, letter: str, base: int = 0) -> memories_pb.MemoryMutation:
    return put("preferences", base, topic=f"t{number}", content=letter * size)


async def test_texts_that_do_not_fit_are_left_out_of_an_answer_that_arrives(store: Parts) -> None:
    sizes = [9_000, 300, 9_000, 300]
    await store.write(*(of_memory(number, size, "a") for number, size in enumerate(sizes)))
    await store.write(*(of_memory(number, size, "b", 1) for number, size in enumerate(sizes)))
    bound = 20_000
    request = pb.RollbackRevisionRequest(revision=2)

    async def done(**fields: Any) -> pb.RollbackRevisionResponse:
        request.MergeFrom(pb.RollbackRevisionRequest(**fields))
        return await rollback.roll_back(cast(Store, store), ANN, request, bound)

    preview = await done(preview=True)
    request.preview = False
    answer = await done()
    assert answer.revision == 3 and await content(store, answer.changes[2].uri) == "a" * 9_000
    for one in (preview, answer):
        assert one.texts_omitted and one.ByteSize() <= bound
        assert [(len(change.before), len(change.after)) for change in one.changes] == [
            (9_000, 9_000), (300, 300), (0, 0), (300, 300),
        ]  # fmt: skip
        assert [change.version for change in one.changes] == [3] * 4
        assert all(change.memory_type == "preferences" for change in one.changes)
    bound = MAX_PAGE_BYTES
    request.revision = 3
    whole = await done()
    assert not whole.texts_omitted and len(whole.changes[2].after) == 9_000
    # Names that have no room are counted; what was asked for is done all the same.
    bound = 300
    request.revision = 4
    answer = await done()
    assert answer.revision == 5 and answer.ByteSize() <= bound
    assert answer.texts_omitted and len(answer.changes) + answer.changes_omitted == 4 and answer.changes_omitted
    assert len(await store.database.read(history.page, ANN, memories.LATEST, 10)) == 5


async def test_a_rollback_of_what_was_seen_is_refused_once_more_is_there(store: Parts) -> None:
    await store.write(tea("one"))
    await store.write(tea("two", 1))
    seen = await store.roll_back(2, preview=True)
    assert seen.newest_revision == 2
    # Of another memory: without an expectation it would be no hindrance.
    moved = meddled(store, lambda _: store.write(bread("Rye.")))
    for parts, newest in ((moved, 3), (store, 3)):
        with pytest.raises(ApiError) as caught:
            await parts.roll_back(2, expected_revision=2)
        assert (caught.value.code.name, caught.value.reason) == ("ABORTED", ERROR_REASON_VERSION_MISMATCH)
        assert caught.value.metadata == {"expected_revision": "2", "newest_revision": str(newest)}
    assert await content(store) == "two"
    done = await store.roll_back(2, expected_revision=3, request_id="r")
    assert (done.revision, done.newest_revision) == (4, 0) and await content(store) == "one"
    assert await store.roll_back(2, expected_revision=3, request_id="r") == done


async def test_revisions_of_another_user_are_not_seen(store: Parts) -> None:
    await store.write(tea("one"))
    with pytest.raises(NotFound):
        await store.database.read(history.get, BOB, 1)
    assert await store.database.read(history.page, BOB, memories.LATEST, 10) == []
