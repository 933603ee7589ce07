"""What there is to take back of a revision: memories that it made, changed or deleted, as they were and as they are."""

from collections.abc import Iterable
from dataclasses import dataclass

from storage import memories
from storage.database import Space, Tx
from storage.records import Memory
from storage.statement_lists import filled, places

MOST_LATER = 100
"""Later revisions that are named of one memory."""

_OF_SPACE = "FROM memories m WHERE m.account = $1 AND m.user_id = $2"


@dataclass(frozen=True, slots=True)
class Before:
    """A version that can be written again, with the vectors of its row."""

    memory: Memory
    dense: bytes | None
    dense_model: str
    sparse: bytes


@dataclass(frozen=True, slots=True)
class Touched:
    """`made`: the version that the revision made, maybe a delete; `before`: the one that was alive until then;
    `newest`: the last one there is, maybe a delete; `later`: revisions after it that made versions, oldest first."""

    made: Memory
    before: Before | None
    newest: Memory
    later: tuple[int, ...]


async def touched_by(tx: Tx, space: Space, revision: int) -> list[Touched]:
    """By URI. Of what was erased nothing is left that could be taken back."""
    made = await _made(tx, space, revision)
    before = await _before(tx, space, made, revision)
    newest = await _newest(tx, space, made)
    return [
        Touched(
            one,
            before.get(uri),
            newest[uri],
            await _later(tx, space, one) if newest[uri].version != one.version else (),
        )
        for uri, one in made.items()
    ]


async def _made(tx: Tx, space: Space, revision: int) -> dict[str, Memory]:
    """Versions that the revision made, by URI."""
    # Names first, which an index holds: asked for whole rows, a planner may rather read the space.
    named = await tx.fetch(
        f"SELECT m.uri {_OF_SPACE} AND m.rev_from = $3",
        space.account,
        space.user,
        revision,
    )
    found: dict[str, Memory] = {}
    for some in filled(sorted(row["uri"] for row in named)):
        rows = await tx.fetch(
            f"SELECT {memories.COLUMNS} {_OF_SPACE} AND m.rev_from = $3 AND m.uri IN ({places(4)}) ORDER BY m.uri",
            space.account,
            space.user,
            revision,
            *some,
        )
        found |= {row["uri"]: memories.memory(row) for row in rows}
    return found


async def _before(tx: Tx, space: Space, uris: Iterable[str], revision: int) -> dict[str, Before]:
    """Versions that the revision ended."""
    found: dict[str, Before] = {}
    for some in filled(uris):
        rows = await tx.fetch(
            f"SELECT {memories.COLUMNS}, m.dense, m.dense_model, m.sparse {_OF_SPACE} AND m.deleted = 0"
            f" AND m.rev_to = $3 AND m.uri IN ({places(4)})",
            space.account,
            space.user,
            revision,
            *some,
        )
        for row in rows:
            columns = dict(row)
            dense, model, words = columns.pop("dense"), columns.pop("dense_model"), columns.pop("sparse")
            vector = None if dense is None else bytes(dense)
            found[row["uri"]] = Before(memories.memory(columns), vector, model, bytes(words))
    return found


async def _newest(tx: Tx, space: Space, uris: Iterable[str]) -> dict[str, Memory]:
    found: dict[str, Memory] = {}
    for some in filled(uris):
        rows = await tx.fetch(
            f"SELECT {memories.COLUMNS} {_OF_SPACE} AND m.uri IN ({places(3)})"
            " AND m.version = (SELECT MAX(n.version) FROM memories n"
            " WHERE n.account = m.account AND n.user_id = m.user_id AND n.uri = m.uri)",
            space.account,
            space.user,
            *some,
        )
        found |= {row["uri"]: memories.memory(row) for row in rows}
    return found


async def _later(tx: Tx, space: Space, made: Memory) -> tuple[int, ...]:
    rows = await tx.fetch(
        f"SELECT m.rev_from {_OF_SPACE} AND m.uri = $3 AND m.version > $4 ORDER BY m.version LIMIT $5",
        space.account,
        space.user,
        made.uri,
        made.version,
        MOST_LATER,
    )
    return tuple(row["rev_from"] for row in rows)
