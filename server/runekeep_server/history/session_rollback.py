"""Rollback of a session: takes back what its commits and its accepted proposals changed, in one transaction.

Each revision is taken back by a new one, the newest first, so that history says of each what became of it, and a
rollback of one revision can be taken back like any other.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from runekeep.v1 import history_service_pb2 as pb
from runekeep.v1.session_service_pb2 import MemoryChange
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.history.rollback import Plan, checked_newest, fill, planned, write
from runekeep_server.protocol.errors import rollback_conflict, session_rollback_too_large
from runekeep_server.protocol.idempotency import prepare_and_mutate
from runekeep_server.wire.basics import session_id
from runekeep_storage.database import Space, Tx
from runekeep_storage.history import rollbacks
from runekeep_storage.history.rollbacks import Touched
from runekeep_storage.records import Memory
from runekeep_storage.store import Store

MAX_CHANGES: Final = 1000
"""Maximum changes of memories, and revisions, that one call takes back. They are written in one transaction, for which
all other writes of a SQLite store wait: 1,000 took 0.7 to 5 seconds on two busy cores."""
_NUMBER_BYTES: Final = 10
"""Maximum bytes of a revision in an answer."""


@dataclass(slots=True)
class _SessionPlan:
    """The plans of the revisions, newest first, and what they change together, by URI. `later`: revisions of others
    whose changes would be lost."""

    open_commits: int
    plans: list[Plan] = field(default_factory=list)
    changes: dict[str, MemoryChange] = field(default_factory=dict)
    later: dict[str, set[int]] = field(default_factory=dict)

    def add(self, plan: Plan) -> None:
        self.plans.append(plan)
        for change in plan.changes:
            first = self.changes.get(change.uri)
            if first is not None:
                change = MemoryChange(
                    uri=change.uri,
                    memory_type=change.memory_type,
                    before=first.before,
                    after=change.after,
                    version=change.version,
                )
            self.changes[change.uri] = change
        for uri, numbers in plan.later.items():
            self.later.setdefault(uri, set()).update(numbers)

    def conflicts(self) -> dict[str, list[int]]:
        return {uri: sorted(numbers) for uri, numbers in sorted(self.later.items())}

    def answer(self, most_bytes: int, *, newest: int = 0) -> pb.RollbackSessionResponse:
        """Returns the answer without the revisions that the rollback makes, which fit in `most_bytes` too."""
        answer = pb.RollbackSessionResponse(newest_revision=newest, open_commits=self.open_commits)
        room = most_bytes - _NUMBER_BYTES * len(self.plans)
        fill(answer, [change for _, change in sorted(self.changes.items())], self.conflicts(), room)
        return answer


async def roll_back_session(
    store: Store, space: Space, request: pb.RollbackSessionRequest, most_bytes: int
) -> pb.RollbackSessionResponse:
    """Takes back what a session changed, or returns a preview. `most_bytes`: maximum size of the answer.

    Raises ApiError, NotFound, RequestReused, VersionConflict (memories kept changing), StoreUnavailable.
    """
    session = session_id("session", request.session, space.user)
    expected = request.expected_revision
    if request.preview:
        newest, plan = await _plan(store, space, session, expected)
        return plan.answer(most_bytes, newest=newest)

    async def prepare() -> tuple[list[Plan], pb.RollbackSessionResponse]:
        _, plan = await _plan(store, space, session, expected)
        if plan.later and not request.force:
            raise rollback_conflict(f"the commits of session {session}", plan.conflicts(), session=session)
        return plan.plans, await asyncio.to_thread(plan.answer, most_bytes)

    async def work(prepared: tuple[list[Plan], pb.RollbackSessionResponse], tx: Tx) -> pb.RollbackSessionResponse:
        plans, answer = prepared
        await checked_newest(tx, space, expected)
        made = [await write(tx, space, one) for one in plans]
        # A transaction may run more than once.
        answer.ClearField("revisions")
        answer.revisions.extend(revision for revision in made if revision)
        return answer

    answer = await prepare_and_mutate(
        store.database, space, request, pb.RollbackSessionResponse, prepare, work, session_id=session
    )
    store.relay.wake()
    return answer


async def _plan(store: Store, space: Space, session: str, expected: int) -> tuple[int, _SessionPlan]:
    """Returns the newest revision, and what the rollback changes."""
    newest, open_commits, touched = await store.database.read(_read, space, session, expected)
    model = store.attachment.models.main
    return newest, await asyncio.to_thread(_planned, open_commits, touched, store.registry, model)


async def _read(tx: Tx, space: Space, session: str, expected: int) -> tuple[int, int, list[tuple[int, list[Touched]]]]:
    """Returns the newest revision, the number of open commits, and the revisions to take back, newest first, with the
    memories that they touched. Raises ApiError TOO_LARGE beyond MAX_CHANGES."""
    newest = await checked_newest(tx, space, expected)
    made = await rollbacks.of_session(tx, space, session)
    own = frozenset(made.revisions)
    touched: list[tuple[int, list[Touched]]] = []
    changes = 0
    for number in made.revisions:
        memories = await rollbacks.touched_by(tx, space, number, own)
        touched.append((number, memories))
        changes += len(memories)
        if max(changes, len(own)) > MAX_CHANGES:
            raise session_rollback_too_large(session, MAX_CHANGES, made.revisions[0])
    return newest, made.open_commits, touched


def _planned(
    open_commits: int, revisions: Sequence[tuple[int, Sequence[Touched]]], registry: Registry, model: str
) -> _SessionPlan:
    """Plans each rollback on the states that those before it leave."""
    whole = _SessionPlan(open_commits)
    left: dict[str, Memory] = {}
    for number, touched in revisions:
        now = [replace(one, newest=left.get(one.newest.uri, one.newest)) for one in touched]
        plan = planned(number, now, registry, model)
        versions = {one.uri: one.version for one in plan.writes}
        for one in now:
            if (version := versions.get(one.newest.uri)) is not None:
                state = replace(one.before.memory, deleted=False) if one.before else replace(one.newest, deleted=True)
                left[one.newest.uri] = replace(state, version=version)
        whole.add(plan)
    return whole
