"""History under any order of writes by workers, callers and rollbacks: what is taken back is exactly as it was, what
differs between two revisions leads from the one to the other, and searches see any revision as it was."""

import asyncio
import json
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, cast

from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from runekeep.v1 import history_service_pb2 as pb
from runekeep.v1 import memory_service_pb2 as memories_pb
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.history.service import HistoryService
from runekeep_server.identity import development_caller, enter_principal, new_trace
from runekeep_server.memories import search
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.settings import Settings
from runekeep_storage.database import Space, Tx
from runekeep_storage.index.base import VectorIndex
from runekeep_storage.memories import memories, revisions
from tests.contract.memories.test_memories_machine import PICK, SPACE, MemoriesMachine
from tests.support.storage.databases import Clock, NewStore
from tests.support.storage.edge_in_thread import EdgeHere
from tests.support.storage.memories_model import NAMES, Known, Model, everything, file_of, registry_with_runs
from tests.support.storage.state_machines import hold_machine

EXACT = (
    "uri, memory_type, peer_id, fields, content, abstract, overview, sources, dense, dense_model, sparse, happened_at,"
    " tags, created_at"
)
"""What a rollback brings back to the letter."""


def alike(one: Known | None, other: Known | None) -> bool:
    return (one.fields if one else None) == (other.fields if other else None)


class HistoryMachine(MemoriesMachine):
    """`rolled_back`: of each space, which revision took back which."""

    def __init__(
        self, new_store: NewStore, clock: Clock, registry: Registry, index: VectorIndex, runner: asyncio.Runner
    ) -> None:
        super().__init__(new_store, clock, registry, index, runner)
        self.rolled_back: dict[Space, dict[int, int]] = {model.space: {} for model in self.models}

    def run(self, work: Awaitable[Any]) -> Any:
        """No two writes at the same time: when a memory was first written is told apart from when it was changed."""
        self.clock.advance(0.001)
        return super().run(work)

    def new_server(self) -> None:
        super().new_server()
        cast(Any, self.store).finder = self.search.finder

    def call(self, model: Model, method: str, request: Message) -> Any:
        """A call of HistoryService by the user of the space."""

        async def made() -> Any:
            space = model.space
            caller = (("x-runekeep-account", space.account), ("x-runekeep-user", space.user))
            enter_principal(development_caller(caller, new_trace()))
            service = HistoryService(self.store, Settings())
            return await getattr(service, method)(request, cast(Any, None))

        return self.run(made())

    def of_revision(self, model: Model, revision: int) -> dict[str, tuple[Any, ...]]:
        """Of each memory that is alive at a revision, what is to come back."""

        async def work(tx: Tx) -> Any:
            return await tx.fetch(
                f"SELECT {EXACT} FROM memories WHERE account = $1 AND user_id = $2 AND deleted = 0 AND rev_from <= $3"
                " AND (rev_to = 0 OR rev_to > $3)",
                model.space.account,
                model.space.user,
                revision,
            )

        return {row["uri"]: tuple(row) for row in self.read_global(work)}

    @precondition(lambda self: any(len(model.history) > 1 for model in self.models))
    @rule(space=SPACE, back=st.integers(0, 6), force=st.booleans())
    def a_revision_is_taken_back(self, space: int, back: int, force: bool) -> None:
        model = self.models[space]
        number = max(1, len(model.history) - 1 - back)
        was, made, now = model.history[number - 1], model.history[number], model.history[-1]
        names = [name for name in NAMES if made.get(model.uri(name)) != was.get(model.uri(name))]
        uris = {model.uri(name): name for name in names}
        wanted = {uri for uri in uris if not alike(now.get(uri), was.get(uri))}
        lost = {uri: self.changed_after(model, uri, number) for uri in wanted if not alike(now.get(uri), made.get(uri))}
        before = self.read_global(everything)
        exact, current = self.of_revision(model, number - 1), self.of_revision(model, memories.LATEST)

        request = pb.RollbackRevisionRequest(revision=number, force=force, preview=True)
        preview = self.call(model, "RollbackRevision", request)
        assert self.read_global(everything) == before
        assert preview.revision == 0
        assert {one.uri: list(one.revisions) for one in preview.conflicts} == lost
        assert [one.uri for one in preview.changes] == sorted(wanted)

        request.preview = False
        try:
            answer = self.call(model, "RollbackRevision", request)
        except ApiError as error:
            assert lost and not force and error.code.name == "FAILED_PRECONDITION"
            assert {one.subject for one in error.preconditions} == set(lost)
            assert self.read_global(everything) == before
            return
        assert force or not lost
        assert list(answer.changes) == list(preview.changes) and list(answer.conflicts) == list(preview.conflicts)
        if not wanted:
            assert answer.revision == 0 and self.read_global(everything) == before
            return
        model.revised({uris[uri]: was[uri].fields if uri in was else None for uri in wanted})
        assert answer.revision == len(model.history) - 1
        self.rolled_back[model.space][answer.revision] = number
        after = self.of_revision(model, memories.LATEST)
        untouched = {uri: row for uri, row in current.items() if uri not in wanted}
        assert after == untouched | {uri: row for uri, row in exact.items() if uri in wanted}
        if number == len(model.history) - 2:
            assert after == exact

    def changed_after(self, model: Model, uri: str, revision: int) -> list[int]:
        history = model.history
        return [at for at in range(revision + 1, len(history)) if history[at].get(uri) != history[at - 1].get(uri)]

    @rule(
        space=SPACE, one=PICK, other=PICK, below=st.sampled_from(["", "/preferences", "/runs"]), size=st.integers(1, 3)
    )
    def two_revisions_are_compared(self, space: int, one: int, other: int, below: str, size: int) -> None:
        """What differs, put upon the one, gives the other."""
        model = self.models[space]
        earlier, later = sorted((one % len(model.history), other % len(model.history)))
        self.compare(model, earlier, later, below, size)

    def compare(self, model: Model, earlier: int, later: int, below: str = "", size: int = 50) -> None:
        root = f"viking://user/{model.space.user}/memories{below}" if below else ""
        request = pb.DiffRevisionsRequest(uri=root, page_size=size)
        if earlier:
            getattr(request, "from").revision = earlier
        if later:
            request.to.revision = later
        else:
            request.to.time.FromMicroseconds(1)
        files, expected = (self.files(model, at, root) for at in (earlier, later))
        seen = []
        while True:
            page = self.call(model, "DiffRevisions", request)
            assert (page.from_revision, page.to_revision) == (earlier, later)
            assert len(page.changes) <= size and (page.changes or not page.next_page_token)
            for change in page.changes:
                seen.append(change.uri)
                assert files.get(change.uri, "") == change.before != change.after
                files[change.uri] = change.after
                if not change.after:
                    del files[change.uri]
                assert change.version == self.version_at(model, change.uri, later)
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        assert seen == sorted(set(seen))
        assert files == expected

    def files(self, model: Model, revision: int, root: str) -> dict[str, str]:
        async def work(tx: Tx) -> dict[str, str]:
            return {
                uri: file_of(model, await memories.get(tx, model.space, uri, version=known.version))
                for uri, known in model.history[revision].items()
                if uri.startswith(root)
            }

        return cast(dict[str, str], self.read_global(work))

    def version_at(self, model: Model, uri: str, revision: int) -> int:
        async def work(tx: Tx) -> int:
            found, _ = await memories.versions_page(tx, model.space, uri, memories.LATEST, 1000, 2**40)
            return max(one.version for one in found if one.rev_from <= revision)

        return cast(int, self.read_global(work))

    @rule(space=SPACE, size=st.integers(1, 7), of=st.sampled_from(["", *NAMES]))
    def revisions_are_listed(self, space: int, size: int, of: str) -> None:
        model = self.models[space]
        uri = model.uri(of) if of else ""
        request = pb.ListRevisionsRequest(page_size=size, uri=uri)
        listed: list[pb.Revision] = []
        while not listed or request.page_token:
            page = self.call(model, "ListRevisions", request)
            listed += page.revisions
            request.page_token = page.next_page_token
            if not page.revisions:
                break
        history, taken = model.history, self.rolled_back[model.space]
        numbers = [
            at for at in range(len(history) - 1, 0, -1) if not uri or history[at].get(uri) != history[at - 1].get(uri)
        ]
        assert [one.number for one in listed] == numbers
        for one in listed:
            was, made = history[one.number - 1], history[one.number]
            assert (one.adds, one.deletes) == (len(made.keys() - was.keys()), len(was.keys() - made.keys()))
            assert one.updates == sum(made[uri] != was[uri] for uri in made.keys() & was.keys())
            assert one.rolled_back == taken.get(one.number, 0)
            assert one.rolled_back_by == max((by for by, back in taken.items() if back == one.number), default=0)
            assert (one.origin == pb.REVISION_ORIGIN_ROLLBACK) == (one.number in taken)
            assert (one.origin == pb.REVISION_ORIGIN_COMMIT) == bool(one.archive_uri) == bool(one.task_id)

    @rule(space=SPACE, size=st.integers(1, 3))
    def it_is_asked_what_came_of_messages(self, space: int, size: int) -> None:
        """The other way is in the versions: each names the messages that it came from."""
        model = self.models[space]
        expected: dict[str, dict[str, int]] = {}

        async def work(tx: Tx) -> list[str]:
            rows = await tx.fetch("SELECT message_id FROM messages WHERE account = $1", model.space.account)
            return [row["message_id"] for row in rows]

        for uri in model.newest:
            # Newest first.
            for version in self.read(memories.versions_page, model.space, uri, memories.LATEST, 1000, 2**40)[0]:
                for source in json.loads(version.sources):
                    expected.setdefault(source["message_id"], {}).setdefault(uri, version.version)
        for message in self.read_global(work):
            request = pb.ListMessageMemoriesRequest(session="s", message_id=message, page_size=size)
            listed: list[Any] = []
            while True:
                page = self.call(model, "ListMessageMemories", request)
                listed += page.memories
                request.page_token = page.next_page_token
                if not request.page_token:
                    break
            assert [(one.uri, one.version) for one in listed] == sorted(expected.get(message, {}).items())

    @rule(space=SPACE, pick=PICK, by_time=st.booleans())
    def a_searcher_looks_back(self, space: int, pick: int, by_time: bool) -> None:
        """However far the index is, at a revision that it may be before or behind."""
        self.search_at(self.models[space], pick % len(self.models[space].history), by_time)

    def search_at(self, model: Model, revision: int, by_time: bool = False) -> None:
        if not revision:
            return
        request = memories_pb.FindMemoriesRequest(
            query="text number second line grep", limit=20, kinds=[memories_pb.FOUND_KIND_MEMORY],
            view=memories_pb.MEMORY_VIEW_FULL,
        )  # fmt: skip
        if by_time:
            made = self.read(revisions.made_at, model.space, revision)
            request.as_of.time.FromMicroseconds(made)
        else:
            request.as_of.revision = revision
        answer = self.run(search.find(self.store, model.space, request))
        found = {one.memory.uri: (one.memory.version, one.memory.content) for one in answer.results}
        assert len(found) == len(answer.results)

        async def work(tx: Tx) -> dict[str, tuple[int, str]]:
            return {
                uri: (known.version, (await memories.get(tx, model.space, uri, version=known.version)).content)
                for uri, known in model.history[revision].items()
            }

        assert found == self.read_global(work)

    def teardown(self) -> None:
        for model in self.models:
            for revision in range(len(model.history)):
                self.search_at(model, revision)
                self.compare(model, revision - 1 if revision else 0, revision)
        super().teardown()


def test_history_is_exact_in_any_order_of_writes_and_rollbacks(
    new_store: NewStore, clock: Clock, tmp_path: Path, share: int
) -> None:
    with asyncio.Runner() as runner:
        index = EdgeHere(tmp_path / "index")
        try:
            machine = partial(HistoryMachine, new_store, clock, registry_with_runs(tmp_path), index)
            hold_machine(machine, new_store, examples=16 // share, runner=runner)
        finally:
            runner.run(index.close())
