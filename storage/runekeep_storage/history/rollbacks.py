"""Reads what a rollback of a revision needs: the memories that it made, changed or deleted, as they were before and as
they are now."""

from collections.abc import Iterable
from dataclasses import dataclass

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.history import statements
from runekeep_storage.memories import memories
from runekeep_storage.records import Memory

MAX_LATER = 100
"""Maximum number of later revisions that are listed for one memory."""


@dataclass(frozen=True, slots=True)
class Before:
    """An earlier version that can be written again, with the vectors of its row."""

    memory: Memory
    dense: bytes | None
    dense_model: str
    sparse: bytes


@dataclass(frozen=True, slots=True)
class Touched:
    """A memory that a revision touched. `made`: the version that the revision made; `before`: the version that was
    alive until then; `newest`: the newest version; `later`: later revisions that made versions, oldest first. `made`
    and `newest` may be deletes."""

    made: Memory
    before: Before | None
    newest: Memory
    later: tuple[int, ...]


async def touched_by(tx: Tx, space: Space, revision: int) -> list[Touched]:
    """Returns the memories that a revision touched, by URI. Erased versions leave nothing that could be taken back."""
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
    """Returns the versions that the revision made, by URI."""
    # Selects URIs first, which an index contains: for whole rows a planner may rather read the space.
    named = await tx.fetch(statements.URIS_OF_REVISION, space.account, space.user, revision)
    found: dict[str, Memory] = {}
    for some in filled(sorted(row["uri"] for row in named)):
        rows = await tx.fetch(statements.VERSIONS_OF_REVISION, space.account, space.user, revision, *some)
        found |= {row["uri"]: memories.memory(row) for row in rows}
    return found


async def _before(tx: Tx, space: Space, uris: Iterable[str], revision: int) -> dict[str, Before]:
    """Returns the versions that the revision ended, by URI."""
    found: dict[str, Before] = {}
    for some in filled(uris):
        rows = await tx.fetch(statements.VERSIONS_ENDED_BY, space.account, space.user, revision, *some)
        for row in rows:
            columns = dict(row)
            dense, model, words = columns.pop("dense"), columns.pop("dense_model"), columns.pop("sparse")
            vector = None if dense is None else bytes(dense)
            found[row["uri"]] = Before(memories.memory(columns), vector, model, bytes(words))
    return found


async def _newest(tx: Tx, space: Space, uris: Iterable[str]) -> dict[str, Memory]:
    found: dict[str, Memory] = {}
    for some in filled(uris):
        rows = await tx.fetch(statements.NEWEST_VERSIONS, space.account, space.user, *some)
        found |= {row["uri"]: memories.memory(row) for row in rows}
    return found


async def _later(tx: Tx, space: Space, made: Memory) -> tuple[int, ...]:
    rows = await tx.fetch(statements.LATER_REVISIONS, space.account, space.user, made.uri, made.version, MAX_LATER)
    return tuple(row["rev_from"] for row in rows)
