"""Receipts of erasures, and how far each one is.

    taking --> removing --> purging --> verified
                  ^------------'  when something was found that ought to be gone

`taking`: rows are taken away behind a space that is shut. `removing`: nothing of it can be read any more; points, blobs
and what is left of sessions still go. `purging`: store and index let go of what they keep of deleted data.

A receipt names nothing of what was erased. What is needed to find the rest of it stands in `remains` until it is
verified: ids, numbers, and names of memories and peers by their digest, so that the purge leaves no name behind.
"""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any

from storage.database import Row, Space, Tx
from storage.errors import NotFound


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
    """`peer_id` of a peer; `session_id` of a session or of messages, whose ids are `message_ids`."""

    kind: Kind
    peer_id: str = ""
    session_id: str = ""
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was taken away, counted as in SpaceContents; `reverted`: memories that went back to an earlier version."""

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
    """By what the rest of an erasure is found, and verified.

    `peer_id`: a peer's own name while its rows are still being taken, its digest then. `ends`: by session the number of
    the newest message then. `revision`: the newest one that held anything of it. `outbox`: number of the last entry
    that takes its points out of the index. `memories`: digests of the URIs of memories that are gone; `cut`: of all
    that lost versions. `turns`: by session, turns that lost a message; `later`: by session, turns whose workers were
    shown those. `images`: by session, digests of their URLs. `tasks`: of the archives that held one of its messages.
    `nothing`: there was nothing to take away, and nobody had taken anything away in this space before.
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


_COLUMNS = "erasure_id, scope, state, receipt, remains, created_at, verified_at"


def digest(name: str) -> str:
    """Stands for a name that may tell what was erased."""
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
    """Writes it as it is now, for the first time or again."""
    await tx.execute(
        f"INSERT INTO erasures (account, user_id, {_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        " ON CONFLICT (account, user_id, erasure_id) DO UPDATE SET state = excluded.state, receipt = excluded.receipt,"
        " remains = excluded.remains, verified_at = excluded.verified_at",
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
    """Raises NotFound."""
    row = await tx.fetchrow(
        f"SELECT {_COLUMNS} FROM erasures WHERE account = $1 AND user_id = $2 AND erasure_id = $3",
        space.account,
        space.user,
        erasure_id,
    )
    if row is None:
        raise NotFound("erasure", erasure_id)
    return _erasure(row)


async def page(tx: Tx, space: Space, after: tuple[int, str] | None, limit: int) -> list[Erasure]:
    """Newest first, after (created_at, erasure_id) of the page before."""
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM erasures WHERE account = $1 AND user_id = $2 AND (created_at, erasure_id) < ($3, $4)"
        " ORDER BY created_at DESC, erasure_id DESC LIMIT $5",
        space.account,
        space.user,
        *(after or (2**62, "")),
        limit,
    )
    return [_erasure(row) for row in rows]


async def unverified(tx: Tx) -> list[tuple[Space, Erasure]]:
    """Those that are not done, of all accounts, oldest first; seldom many."""
    rows = await tx.fetch(
        f"SELECT account, user_id, {_COLUMNS} FROM erasures WHERE verified_at = 0 ORDER BY created_at"
    )
    return [(Space(row["account"], row["user_id"]), _erasure(row)) for row in rows]


async def move(tx: Tx, space: Space, erasure_id: str, state: State) -> None:
    """To another state; verified from now on, if that is it. Nothing for one that is verified already."""
    there = await get(tx, space, erasure_id)
    if there.state is not State.VERIFIED:
        verified_at = tx.now() if state is State.VERIFIED else 0
        await save(tx, space, replace(there, state=state, verified_at=verified_at))
