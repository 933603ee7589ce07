"""Receipts of erasures, and the state of each erasure.

    taking --> removing --> purging --> verified
                  ^------------'  if something was found that must be gone

`taking`: rows are removed while the space is locked. `removing`: nothing of it can be read any more; points, blobs and
the rest of sessions are still being removed. `purging`: store and index drop what they keep of deleted data.

A receipt names nothing that was erased. The data to find the rest is in `remains` until verification: ids, numbers, and
digests of the names of memories and peers, so that the purge leaves no name behind.
"""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.erasure import statements
from runekeep_storage.errors import NotFound


class State(StrEnum):
    TAKING = "taking"
    REMOVING = "removing"
    PURGING = "purging"
    VERIFIED = "verified"


class Kind(StrEnum):
    """What an erasure covers."""

    USER = "user"
    PEER = "peer"
    SESSION = "session"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Scope:
    """What to erase. `peer_id`: for a peer; `session_id`: for a session, or for messages, whose ids are
    `message_ids`."""

    kind: Kind
    peer_id: str = ""
    session_id: str = ""
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Counts of what was erased, as in SpaceContents; `reverted`: memories that went back to an earlier version."""

    sessions: int = 0
    messages: int = 0
    archives: int = 0
    memories: int = 0
    memory_versions: int = 0
    passages: int = 0
    turns: int = 0
    turn_artifacts: int = 0
    blobs: int = 0
    tasks: int = 0
    answers: int = 0
    reverted: int = 0
    cancelled: int = 0

    def plus(self, more: "Receipt") -> "Receipt":
        return Receipt(**{one.name: getattr(self, one.name) + getattr(more, one.name) for one in fields(Receipt)})


@dataclass(frozen=True, slots=True)
class Remains:
    """The data by which the rest of an erasure is found and verified.

    `peer_id`: a peer's own name while its rows are being removed, then its digest. `ends`: by session, the sequence of
    the newest message at that time. `revision`: the newest revision that held anything of it. `outbox`: the number of
    the last outbox entry that removes its points from the index. `memories`: digests of the URIs of memories that are
    gone; `cut`: of all that lost versions. `turns`: by session, turns that lost a message; `later`: by session, turns
    whose workers were shown those. `images`: by session, digests of their URLs. `tasks`: tasks of the archives that
    held one of its messages. `nothing`: there was nothing to erase, and no data had been deleted in this space before.
    """

    peer_id: str = ""
    session_id: str = ""
    message_ids: tuple[str, ...] = ()
    ends: dict[str, int] = field(default_factory=dict)
    revision: int = 0
    outbox: int = 0
    memories: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    turns: dict[str, list[str]] = field(default_factory=dict)
    later: dict[str, list[str]] = field(default_factory=dict)
    images: dict[str, list[str]] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    nothing: bool = False


@dataclass(frozen=True, slots=True)
class Erasure:
    erasure_id: str
    kind: Kind
    state: State
    receipt: Receipt
    remains: Remains
    created_at: int
    verified_at: int = 0


def digest(name: str) -> str:
    """Returns a digest that replaces a name that may reveal what was erased."""
    return sha256(name.encode()).hexdigest()


def _erasure(row: Row) -> Erasure:
    remains: dict[str, Any] = json.loads(row["remains"]) if row["remains"] else {}
    for name in ("message_ids", "memories", "cut", "tasks"):
        remains[name] = tuple(remains.get(name, ()))
    return Erasure(
        row["erasure_id"],
        Kind(row["scope"]),
        State(row["state"]),
        Receipt(**json.loads(row["receipt"])),
        Remains(**remains),
        row["created_at"],
        row["verified_at"],
    )


async def save(tx: Tx, space: Space, erasure: Erasure) -> None:
    """Inserts or updates the erasure."""
    await tx.execute(
        statements.STORE_ERASURE,
        space.account,
        space.user,
        erasure.erasure_id,
        erasure.kind,
        erasure.state,
        json.dumps(asdict(erasure.receipt)),
        "" if erasure.state is State.VERIFIED else json.dumps(asdict(erasure.remains)),
        erasure.created_at,
        erasure.verified_at,
    )


async def get(tx: Tx, space: Space, erasure_id: str) -> Erasure:
    """Returns an erasure. Raises NotFound."""
    row = await tx.fetchrow(statements.ERASURE, space.account, space.user, erasure_id)
    if row is None:
        raise NotFound("erasure", erasure_id)
    return _erasure(row)


async def page(tx: Tx, space: Space, after: tuple[int, str] | None, limit: int) -> list[Erasure]:
    """Returns up to `limit` erasures, newest first, after (created_at, erasure_id) of the previous page."""
    rows = await tx.fetch(statements.ERASURES, space.account, space.user, *(after or (2**62, "")), limit)
    return [_erasure(row) for row in rows]


async def unverified(tx: Tx) -> list[tuple[Space, Erasure]]:
    """Returns the unverified erasures of all accounts, oldest first; there are seldom many."""
    rows = await tx.fetch(statements.UNVERIFIED)
    return [(Space(row["account"], row["user_id"]), _erasure(row)) for row in rows]


async def move(tx: Tx, space: Space, erasure_id: str, state: State) -> None:
    """Moves an erasure to a state, and sets its time of verification if that is VERIFIED. Does nothing if it is
    verified already."""
    there = await get(tx, space, erasure_id)
    if there.state is not State.VERIFIED:
        verified_at = tx.now() if state is State.VERIFIED else 0
        await save(tx, space, replace(there, state=state, verified_at=verified_at))
