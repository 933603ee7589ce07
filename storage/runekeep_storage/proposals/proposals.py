"""Stores the operations of commits that wait for review. A commit has at most one proposal, which its task names.

A decided operation keeps its number, type and decision. Its text is deleted: an accepted one is in the memories, and a
refused one must not stay.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Self

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.errors import NotFound, VersionConflict
from runekeep_storage.proposals import statements
from runekeep_storage.records import Json

MAX_OPEN_PROPOSALS: Final = 1000
"""Maximum number of proposals of a user with open operations."""
MAX_OPEN_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of the open operations of a user."""

OPEN: Final = "open"
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class ProposedOperation:
    """An operation of a proposal. `number` counts from 1. `state`: OPEN, ACCEPTED or REFUSED. `action`: write, edit or
    delete. `revision`: that of an accepted one; 0 if it changed nothing.

    Only of an open one: `operation`, a MemoryOperation as JSON; `targets`, what it does to each memory by URI (write,
    move or delete) in the state of the space at `base_revision`; `removes`, whether it takes something away; `edited`,
    whether a reviewer changed it.
    """

    number: int
    action: str
    memory_type: str
    state: str = OPEN
    revision: int = 0
    operation: Json = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    base_revision: int = 0
    removes: bool = False
    edited: bool = False

    @property
    def is_open(self) -> bool:
        return self.state == OPEN

    def decided(self, state: str, revision: int = 0) -> Self:
        """Returns the operation without its text."""
        return type(self)(self.number, self.action, self.memory_type, state, revision)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposal of a commit. `plan` and `extractor` are JSON, as the commit had them. `edition` counts its changes.
    `revision`: the newest revision of which its operations may quote memories."""

    session_id: str
    task_id: str
    archive_index: int
    plan: str
    extractor: str
    operations: tuple[ProposedOperation, ...]
    revision: int
    edition: int = 0
    created_at: int = 0

    @property
    def open_count(self) -> int:
        return sum(one.is_open for one in self.operations)

    @property
    def open_bytes(self) -> int:
        return sum(len(one.to_json().encode()) for one in self.operations if one.is_open)

    def with_operations(self, changed: Collection[ProposedOperation]) -> Self:
        """Returns the proposal with the given operations in the place of those with their numbers."""
        by_number = {one.number: one for one in changed}
        return replace(self, operations=tuple(by_number.get(one.number, one) for one in self.operations))


async def has_room(tx: Tx, space: Space, more_proposals: int, more_bytes: int) -> bool:
    """Returns whether the user may have so many more open proposals, and so many more bytes in them."""
    row = await tx.fetchrow(statements.OPEN_TOTALS, space.account, space.user)
    assert row is not None
    count, size = int(row["proposals"]) + more_proposals, int(row["bytes"]) + more_bytes
    return count <= MAX_OPEN_PROPOSALS and size <= MAX_OPEN_BYTES


async def create(tx: Tx, space: Space, proposal: Proposal) -> None:
    await tx.execute(
        statements.INSERT,
        space.account,
        space.user,
        proposal.session_id,
        proposal.task_id,
        proposal.archive_index,
        proposal.plan,
        proposal.extractor,
        _encode(proposal.operations),
        proposal.open_count,
        proposal.open_bytes,
        proposal.revision,
        proposal.edition,
        tx.now(),
    )


async def get(tx: Tx, space: Space, task_id: str) -> Proposal:
    """Raises NotFound."""
    row = await tx.fetchrow(statements.GET, space.account, space.user, task_id)
    if row is None:
        raise NotFound("proposal", task_id)
    return _proposal(row)


async def page(
    tx: Tx, space: Space, session_id: str, after: tuple[int, str] | None, limit: int, *, include_decided: bool
) -> list[Proposal]:
    """Returns proposals, newest first, after (created_at, task_id) of the previous page. `session_id`: empty: all."""
    created_at, task_id = after or (2**62, "")
    least = 0 if include_decided else 1
    rows = await tx.fetch(statements.PAGE, space.account, space.user, session_id, least, created_at, task_id, limit)
    return [_proposal(row) for row in rows]


async def update(tx: Tx, space: Space, proposal: Proposal) -> None:
    """Stores changed operations. Raises VersionConflict if the stored proposal has another edition than the given
    one."""
    changed = await tx.execute(
        statements.UPDATE,
        space.account,
        space.user,
        proposal.task_id,
        proposal.edition,
        _encode(proposal.operations),
        proposal.open_count,
        proposal.open_bytes,
        proposal.revision,
    )
    if not changed:
        raise VersionConflict(f"the proposal {proposal.task_id}")


def _encode(operations: Sequence[ProposedOperation]) -> str:
    return f"[{', '.join(one.to_json() for one in operations)}]"


def _proposal(row: Row) -> Proposal:
    return Proposal(
        session_id=row["session_id"],
        task_id=row["task_id"],
        archive_index=row["archive_index"],
        plan=row["plan"],
        extractor=row["extractor"],
        operations=tuple(ProposedOperation(**one) for one in json.loads(row["operations"])),
        revision=row["revision"],
        edition=row["edition"],
        created_at=row["created_at"],
    )
