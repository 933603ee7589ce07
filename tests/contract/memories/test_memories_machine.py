"""Memories under any order of writes by workers and by callers: what was true at a revision stays readable as it was,
and the changes of all revisions, done again one after the other, lead to what is there."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as memories_pb
from runekeep_schemas.policy import Plan
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.apply.applier import Applier
from runekeep_server.apply.output import Output
from runekeep_server.memories import direct_writes
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import LeaseLost, VersionConflict
from runekeep_storage.index.base import PointKind, VectorIndex
from runekeep_storage.jobs import claiming
from runekeep_storage.memories import apply
from runekeep_storage.memories.apply import Applied
from runekeep_storage.records import Job
from runekeep_storage.search.requests import FindAnswer
from runekeep_storage.sessions import archives
from runekeep_storage.store import Store
from tests.support.storage import databases
from tests.support.storage.databases import MADE, TERMS, Clock, NewStore, prepared, talk
from tests.support.storage.edge_in_thread import EdgeHere
from tests.support.storage.memories_model import (
    NAMES,
    TOOL,
    Fields,
    Model,
    check_replay,
    check_revision,
    check_versions,
    everything,
    registry_with_runs,
)
from tests.support.storage.search import GRACE_SECONDS, Search, nothing_waits
from tests.support.storage.search import memories as found_in
from tests.support.storage.state_machines import StoreMachine, hold_machine
from tests.support.worker import delete, edit, value, write

ACCOUNTS = ("acme", "other")
USER = "ann"
"""One name in both, so that only the account tells them apart."""
PLAN = Plan(
    allow_self=True, allowed_peer_ids=(), long_term_types=("preferences", "runs"), execution_types=(),
    session_skills=False,
)  # fmt: skip

SPACE = st.integers(0, len(ACCOUNTS) - 1)
NAME = st.sampled_from(NAMES)
CHANGE = st.tuples(NAME, st.sampled_from(["write", "write", "edit", "delete"]))
"""What is done to which memory; the words that it gets are new each time."""
CHANGES = st.lists(CHANGE, max_size=6)
PICK = st.integers(0, 30)
OFF = st.sampled_from([(-1, 0), (1, 0), (2, 0), (0, -1), (0, 1), (-1, -1)])
"""How far a base version and the version made of it are from what would be right."""


async def nothing(tx: Tx) -> None:
    pass


class MemoriesMachine(StoreMachine):
    """Rules are outputs of workers, writes by callers, and both on versions that are not there any more."""

    def __init__(
        self, new_store: NewStore, clock: Clock, registry: Registry, index: VectorIndex, runner: asyncio.Runner
    ) -> None:
        super().__init__(new_store, clock, runner)
        # The index is one for all examples: each has accounts of its own in it.
        example = uuid4().hex
        self.models = [Model(Space(f"{account}-{example}", USER), registry) for account in ACCOUNTS]
        self.search = Search.of(self.database, index, registry)
        self.run(self.search.attachment.attach())
        self.store = cast(Store, SimpleNamespace(database=self.database, all_spaces=self.database, registry=registry))
        self.new_server()
        self.applier = Applier(self.store)
        self.texts = 0

    def new_server(self) -> None:
        """Whatever a server knew that is not in the store is forgotten."""
        known = self.search
        self.search = Search.of(self.database, known.index, known.registry, known.attachment)
        self.store.embedders, self.store.relay = self.search.embedders, self.search.relay
        self.store.attachment = self.search.attachment

    def words(self) -> str:
        """A text that was never there before."""
        self.texts += 1
        return f"text number {self.texts}, with\na second line"

    @initialize(changes=st.lists(CHANGE, min_size=2, max_size=5))
    def begin(self, changes: list[tuple[str, str]]) -> None:
        for model in self.models:
            self.claim(model)
            self.output(model, changes)

    def claim(self, model: Model) -> None:
        """A commit of the space is queued and taken by a worker."""
        space = model.space
        task_id = f"t{len(model.done)}-{space.account}"
        self.run(talk(self.database, space, "s", "hello"))

        async def work(tx: Tx) -> Job:
            batch = await archives.to_archive(tx, space, "s", 0)
            assert batch is not None
            await archives.commit(tx, space, batch, task_id=task_id, plan=json.dumps(PLAN.to_json()), traceparent="")
            # Nobody else waits: each space has one commit under way at most, and it is leased.
            claimed = await claiming.claim(tx, "w1", TERMS)
            assert claimed is not None and claimed[0].job_id == task_id
            return claimed[0]

        job: Job = self.write_global(work)
        assert job.revision == len(model.history) - 1
        model.job = job

    @precondition(lambda self: self.among(busy=False))
    @rule(pick=PICK)
    def a_worker_begins(self, pick: int) -> None:
        self.claim(self.one(pick, busy=False))

    @precondition(lambda self: self.among(busy=True))
    @rule(pick=PICK, changes=CHANGES)
    def a_worker_ends(self, pick: int, changes: list[tuple[str, str]]) -> None:
        self.output(self.one(pick, busy=True), changes)

    @rule(space=SPACE, changes=CHANGES)
    def a_worker_works(self, space: int, changes: list[tuple[str, str]]) -> None:
        model = self.models[space]
        if model.job is None:
            self.claim(model)
        self.output(model, changes)

    def among(self, *, busy: bool) -> list[Model]:
        """Spaces with a commit under way, or those without."""
        return [model for model in self.models if (model.job is not None) == busy]

    def one(self, pick: int, *, busy: bool) -> Model:
        among = self.among(busy=busy)
        return among[pick % len(among)]

    def output(self, model: Model, changes: Sequence[tuple[str, str]]) -> None:
        """Several operations may be about one memory: they compose, in their order, and make one version."""
        assert model.job is not None
        after: dict[str, Fields | None] = {}
        operations = []
        # Each commit is of one message.
        ranges = [(model.job.archive_index,) * 2]
        for name, action in changes:
            known = model.current(name)
            there = after.get(name, known.fields if known else None)
            uri, words = model.uri(name), self.words()
            if action == "delete" and there is not None and name not in after:
                # Behind a write of the same output it is refused; see test_apply_merge.
                operations.append(delete(uri, ranges=ranges))
                after[name] = None
            elif action == "edit" and there is not None and name != TOOL:
                operations.append(edit(uri, ranges=ranges, content=[(str(there["content"]), words)]))
                after[name] = {**there, "content": words}
            elif action == "write" and (name == TOOL or after.get(name) is None):
                # A second whole text beside an earlier operation on the same memory is refused; see test_faults.
                type, fields = model.made(name, words)
                operations.append(write(type, ranges=ranges, **fields))
                if there is not None and name == TOOL:
                    fields = {**there, "total_calls": int(there["total_calls"]) + 1}
                after[name] = fields
        output = Output(
            lease=model.job.lease,
            output_id=f"o-{model.job.job_id}",
            operations=operations,
            summary=common_pb2.Summary(abstract="what was said"),
            usage=[],
            extractor=common_pb2.ExtractorInfo(engine="scripted"),
            dropped_items=0,
            made=MADE,
        )
        applied = self.run(self.applier.apply(output))
        model.revised(after)
        assert isinstance(applied, Applied), applied
        assert (applied.revision, applied.again) == (len(model.history) - 1, False)
        model.done[model.job.lease] = output, applied.revision
        model.job = None

    @precondition(lambda self: any(model.done for model in self.models))
    @rule(space=SPACE, pick=PICK, other=st.booleans())
    def an_output_comes_again(self, space: int, pick: int, other: bool) -> None:
        """The same one is known for what it is; another one under the same lease is too late."""
        model = self.models[space]
        output, revision = list(model.done.values())[pick % len(model.done)]
        if other:
            output = Output(
                output.lease, "another", [write("preferences", topic="Tea", content="late")], output.summary, [],
                output.extractor, 0, MADE,
            )  # fmt: skip
        try:
            applied = self.run(self.applier.apply(output))
        except LeaseLost:
            assert other
        else:
            assert not other and (applied.revision, applied.again) == (revision, True)

    async def written(
        self, model: Model, mutations: Sequence[memories_pb.MemoryMutation]
    ) -> memories_pb.WriteMemoriesResponse:
        request = memories_pb.WriteMemoriesRequest(changes=mutations)
        return await direct_writes.write(self.store, model.space, request, withhold_secrets=True)

    @rule(space=SPACE, changes=st.dictionaries(NAME, st.sampled_from(["put", "edit", "delete"]), min_size=1))
    def a_caller_writes(self, space: int, changes: dict[str, str]) -> None:
        model = self.models[space]
        asked = [self.by_hand(model, name, action) for name, action in changes.items()]
        mutations = [mutation for mutation, _ in asked]
        answer = self.run(self.written(model, mutations))
        model.revised({name: fields for name, (_, fields) in zip(changes, asked, strict=True)})
        assert answer.revision == len(model.history) - 1
        assert [memory.version for memory in answer.memories] == [model.newest[model.uri(name)] for name in changes]

    def by_hand(self, model: Model, name: str, action: str) -> tuple[memories_pb.MemoryMutation, Fields | None]:
        """A change on the version that is there, and the fields afterwards. What is not there can only be put."""
        known = model.current(name)
        type, fields = model.made(name, self.words())
        uri, base = model.uri(name), known.version if known else 0
        if known is not None and action == "delete":
            return memories_pb.MemoryMutation(delete=memories_pb.DeleteMemory(uri=uri), base_version=base), None
        if known is not None and action == "edit":
            field = "total_calls" if name == TOOL else "content"
            patch = common_pb2.FieldPatch(field=field, value=value(fields[field]))
            if name == TOOL:
                # A counter adds up, whoever counts.
                fields["total_calls"] = int(known.fields["total_calls"]) + 1
            asked = memories_pb.EditMemory(uri=uri, patches=[patch])
            return memories_pb.MemoryMutation(edit=asked, base_version=base), {**known.fields, field: fields[field]}
        if name == TOOL:
            # Another number than the one that is there: what changes nothing makes no version.
            fields["total_calls"] = 1000 + self.texts
        wire = {field: value(of) for field, of in fields.items()}
        put = memories_pb.PutMemory(memory_type=type, fields=wire)
        return memories_pb.MemoryMutation(put=put, base_version=base), fields

    @rule(space=SPACE, name=NAME, off=st.sampled_from([-1, 1, 5]), beside=st.booleans())
    def a_caller_writes_on_another_version(self, space: int, name: str, off: int, beside: bool) -> None:
        """Refused as a whole: not even the change beside it, which is right, is made."""
        model = self.models[space]
        mutation, _ = self.by_hand(model, name, "put")
        mutation.base_version = max(0, mutation.base_version + off)
        known = model.current(name)
        if mutation.base_version == (known.version if known else 0):
            mutation.base_version += 1
        other = NAMES[NAMES.index(name) - 1]
        mutations = [self.by_hand(model, other, "put")[0], mutation] if beside else [mutation]
        before = self.read_global(everything)
        try:
            self.run(self.written(model, mutations))
        except ApiError as error:
            assert error.code.name == "ABORTED"
        else:
            raise AssertionError("written on a version that is not the current one")
        assert self.read_global(everything) == before

    @rule(space=SPACE, name=NAME, off=OFF, gone=st.booleans(), first=st.booleans())
    def an_output_is_prepared_on_what_was(
        self, space: int, name: str, off: tuple[int, int], gone: bool, first: bool
    ) -> None:
        """What was right when it was prepared is asked again in the transaction that writes it."""
        model = self.models[space]
        if model.job is None:
            self.claim(model)
        assert model.job is not None
        known, uri = model.current(name), model.uri(name)
        right = known.version if known else 0, model.newest.get(uri, 0) + 1
        wrong = max(0, right[0] + off[0]), right[1] + off[1]
        if wrong == right:
            return
        fresh = databases.write(model.space, "untouched", 0, 1, "new")
        late = replace(databases.write(model.space, name, *wrong, "late", deleted=gone), uri=uri)
        before = self.read_global(everything)
        try:
            self.write(apply.apply, model.space, prepared(model.job.lease, [late, fresh] if first else [fresh, late]))
        except VersionConflict as conflict:
            assert conflict.uri == uri
        else:
            raise AssertionError("written over a version that it was not prepared on")
        assert self.read_global(everything) == before

    @rule()
    def the_relay_goes_on(self) -> None:
        self.run(self.relay())

    async def relay(self, *, wholly: bool = False) -> None:
        """Until the watermarks are at the newest revisions; `wholly`: until it has nothing to do."""
        self.search.relay.start()
        try:
            await self.search.caught_up(*(model.space for model in self.models))
            if wholly:
                await self.search.until(lambda: nothing_waits(self.search))
        finally:
            await self.search.relay.stop()

    @rule(turns=st.integers(1, 60))
    def the_relay_is_stopped(self, turns: int) -> None:
        """Somewhere in its work, like one that dies; how far it came depends on how fast the index answers."""

        async def work() -> None:
            self.search.relay.start()
            for _ in range(turns):
                await asyncio.sleep(0)
            await self.search.relay.stop()
            # A write that the relay no longer waits for is done before this one.
            await self.database.write_global(nothing)

        self.run(work())
        self.new_server()

    @rule()
    def superseded_points_are_due_to_go(self) -> None:
        self.clock.advance(GRACE_SECONDS)

    @rule(space=SPACE)
    def a_caller_searches(self, space: int) -> None:
        """Sees one revision, all of it and nothing else, and never an older one than before."""
        model = self.models[space]
        answer: FindAnswer = self.run(
            self.search.find(model.space, "text", kinds=(PointKind.MEMORY,), memory_types=("preferences",), limit=9)
        )
        assert model.seen <= answer.revision <= answer.latest_revision == len(model.history) - 1
        model.seen = answer.revision
        alive = model.history[answer.revision].values()
        assert sorted(found_in(answer)) == sorted(
            str(known.fields["content"]) for known in alive if "content" in known.fields
        )

    @rule(space=SPACE, pick=PICK)
    def a_reader_looks_back(self, space: int, pick: int) -> None:
        model = self.models[space]
        self.read_global(check_revision, model, pick % len(model.history))

    @invariant()
    def what_is_there_is_what_was_written(self) -> None:
        for model in self.models:
            self.read_global(check_revision, model, len(model.history) - 1)

    def teardown(self) -> None:
        try:
            for model in self.models:
                for revision in range(len(model.history)):
                    self.read_global(check_revision, model, revision)
                self.read_global(check_versions, model)
                self.read_global(check_replay, model)
            self.run(self.check_index())
        finally:
            super().teardown()

    async def check_index(self) -> None:
        """In the end it holds what is alive, and what was said, and nothing else."""
        await self.relay()
        self.clock.advance(GRACE_SECONDS)
        await self.relay(wholly=True)
        for model in self.models:
            assert await self.search.listed(model.space) == await self.search.named(model.space)


def test_memories_keep_their_history_in_any_order_of_writes(
    new_store: NewStore, clock: Clock, tmp_path: Path, share: int
) -> None:
    with asyncio.Runner() as runner:
        index = EdgeHere(tmp_path / "index")
        try:
            machine = partial(MemoriesMachine, new_store, clock, registry_with_runs(tmp_path), index)
            hold_machine(machine, new_store, examples=20 // share, runner=runner)
        finally:
            runner.run(index.close())
