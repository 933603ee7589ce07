"""Reads what a rollback needs: the memories that a revision made, changed or deleted, as they were before and as they
are now; and of a session the revisions that are not taken back yet."""

from collections.abc import Iterable
from dataclasses import dataclass

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.history import statements
from runekeep_storage.memories import memories
from runekeep_storage.records import Memory
from runekeep_storage.sessions import sessions

MAX_LATER = 100
"""Maximum number of later revisions of others that are listed for one memory."""


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


@dataclass(frozen=True, slots=True)
class OfSession:
    """What the commits of a session and their proposals made. `revisions`: those that are not taken back, newest first;
    `open_commits`: how many commits are not finished."""

    revisions: list[int]
    open_commits: int


async def of_session(tx: Tx, space: Space, session_id: str) -> OfSession:
    """Returns what a session made. Raises NotFound."""
    session = await sessions.get(tx, space, session_id)
    of_it = (space.account, space.user, session_id)
    # Revisions of a deleted session of the same name are older than this one.
    made = await tx.fetch(statements.REVISIONS_OF_SESSION, *of_it, session.created_at)
    numbers = [row["revision"] for row in made]
    undone: set[int] = set()
    if numbers:
        # From the newest one on: a rollback that was taken back itself takes nothing back.
        for row in await tx.fetch(statements.ROLLBACKS_SINCE, space.account, space.user, numbers[-1]):
            if row["revision"] not in undone:
                undone.add(row["rolled_back"])
    waiting = await tx.fetchrow(statements.OPEN_COMMITS_OF_SESSION, *of_it)
    assert waiting is not None
    return OfSession([number for number in numbers if number not in undone], waiting["n"])


async def touched_by(tx: Tx, space: Space, revision: int, own: frozenset[int] = frozenset()) -> list[Touched]:
    """Returns the memories that a revision touched, by URI. Revisions of `own`, which are taken back too, do not count
    as later ones. Erased versions leave nothing that could be taken back."""
    made = await _made(tx, space, revision)
    before = await _before(tx, space, made, revision)
    newest = await _newest(tx, space, made)
    return [
        Touched(
            one,
            before.get(uri),
            newest[uri],
            await _later(tx, space, one, own) if newest[uri].version != one.version else (),
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


async def _later(tx: Tx, space: Space, made: Memory, own: frozenset[int]) -> tuple[int, ...]:
    limit = MAX_LATER + len(own)
    rows = await tx.fetch(statements.LATER_REVISIONS, space.account, space.user, made.uri, made.version, limit)
    return tuple(row["rev_from"] for row in rows if row["rev_from"] not in own)[:MAX_LATER]
