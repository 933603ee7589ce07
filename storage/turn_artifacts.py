"""Turn memory in its stored form, and the tags that it is found by.

An artifact is known by session, kind and name; a second one of the same takes the place of the first in one statement,
so that nobody ever sees neither, and its tags change in the same transaction. What is left of a deleted session is not
seen, see `storage.leftovers`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from schemas.turns.stored import ASSISTANT_SIGNAL
from storage.database import Row, Space, Tx
from storage.leftovers import without
from storage.records import Artifact
from storage.statement_lists import SIZE, filled, places

LATEST = 2**62
"""Later than any time in microseconds."""

_COLUMNS = (
    "session_id",
    "kind",
    "name",
    "turn_id",
    "sequence",
    "text",
    "blob",
    "hosted_uri",
    "version",
    "origin",
    "reaction",
    "said_at",
    "updated_at",
)
_KEY = ("account", "user_id", "session_id", "kind", "name")
_OTHERS = tuple(name for name in _COLUMNS if name not in _KEY)
_PUT = (
    f"INSERT INTO turn_artifacts ({', '.join((*_KEY, *_OTHERS))}) VALUES ({places(1, len(_KEY) + len(_OTHERS))})"
    f" ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _OTHERS)}"
)
_OF_KIND = (
    f"SELECT {', '.join(_COLUMNS)} FROM turn_artifacts"
    f" WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = $4{without('turn_artifacts')}"
)
# By the index `turn_tags_of_artifact`: the sequence of an artifact never changes.
_TAGS_OF = "WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence = $4 AND kind = $5 AND name = $6"
_TAGS_OF_SOME = (
    "WITH k (session_id, sequence, kind, name) AS (VALUES "
    + ", ".join(
        f"(${number}, CAST(${number + 1} AS BIGINT), ${number + 2}, ${number + 3})"
        for number in range(3, 3 + 4 * SIZE, 4)
    )
    + ") SELECT t.session_id, t.kind, t.name, t.tag FROM k CROSS JOIN turn_tags t WHERE t.account = $1"
    " AND t.user_id = $2 AND t.session_id = k.session_id AND t.sequence = k.sequence AND t.kind = k.kind"
    " AND t.name = k.name"
)
_ENOUGH = 256
"""Artifacts of a tag that are counted to learn which of several tags is the rarest."""


def artifact(row: Row) -> Artifact:
    """Of a row with all columns; its tags are not among them."""
    return Artifact(**{name: row[name] for name in _COLUMNS})


def columns(table: str) -> str:
    """What `artifact` reads, of the table of that name in a statement."""
    return ", ".join(f"{table}.{name}" for name in _COLUMNS)


async def put(tx: Tx, space: Space, artifact: Artifact, promoted: str = "") -> None:
    """Stores it with its tags, in place of the one of its session, kind and name; `updated_at` is now. `promoted` goes
    with the tag ASSISTANT_SIGNAL."""
    stored = replace(artifact, updated_at=tx.now())
    await tx.execute(
        _PUT,
        space.account,
        space.user,
        stored.session_id,
        stored.kind,
        stored.name,
        *(getattr(stored, name) for name in _OTHERS),
    )
    await _tag(tx, space, stored, promoted)


async def _tag(tx: Tx, space: Space, artifact: Artifact, promoted: str = "") -> None:
    key = (space.account, space.user, artifact.session_id, artifact.sequence, artifact.kind, artifact.name)
    rows = await tx.fetch(f"SELECT tag, promoted, said_at FROM turn_tags {_TAGS_OF}", *key)
    there = {(row["tag"], row["promoted"], row["said_at"]) for row in rows}
    tags = [(tag, promoted if tag == ASSISTANT_SIGNAL else "") for tag in sorted(set(artifact.tags))]
    if there == {(*tag, artifact.said_at) for tag in tags}:
        return
    if there:
        await tx.execute(f"DELETE FROM turn_tags {_TAGS_OF}", *key)
    if tags:
        places_of = range(8, 8 + 2 * len(tags), 2)
        values = ", ".join(f"($1, $2, $3, $4, $5, $6, $7, ${place}, ${place + 1})" for place in places_of)
        await tx.execute(
            "INSERT INTO turn_tags (account, user_id, session_id, sequence, kind, name, said_at, tag, promoted)"
            f" VALUES {values}",
            *key,
            artifact.said_at,
            *(value for tag in tags for value in tag),
        )


async def get(tx: Tx, space: Space, session_id: str, kind: str, name: str) -> Artifact | None:
    """Without its tags."""
    row = await tx.fetchrow(f"{_OF_KIND} AND name = $5", space.account, space.user, session_id, kind, name)
    return artifact(row) if row else None


async def named(tx: Tx, space: Space, session_id: str, kind: str, names: Iterable[str]) -> dict[str, Artifact]:
    """Those that there are, by name, without their tags."""
    found: dict[str, Artifact] = {}
    for some in filled(names):
        rows = await tx.fetch(
            f"{_OF_KIND} AND name IN ({places(5)})", space.account, space.user, session_id, kind, *some
        )
        found |= {row["name"]: artifact(row) for row in rows}
    return found


async def remove(tx: Tx, space: Space, session_id: str, kind: str, name: str) -> bool:
    """Takes it away with its tags; whether it was there."""
    there = await get(tx, space, session_id, kind, name)
    if there is None:
        return False
    await _tag(tx, space, replace(there, tags=()))
    await tx.execute(
        "DELETE FROM turn_artifacts"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = $4 AND name = $5",
        space.account,
        space.user,
        session_id,
        kind,
        name,
    )
    return True


async def by_tags(
    tx: Tx, space: Space, tags: Sequence[str], session_id: str, after: tuple[int, str, str, str] | None, limit: int
) -> list[Artifact]:
    """Artifacts that have all of the tags (at least one), with their tags, sorted; of all sessions when `session_id` is
    empty. Latest `said_at` first, behind (said_at, session_id, kind, name) of the page before, all falling.

    It goes through those of the tag that has the fewest: it costs what that tag has between here and the page's end.
    """
    first, *others = await _rarest_first(tx, space, list(dict.fromkeys(tags)), session_id)
    sql = (
        f"SELECT {columns('a')} FROM turn_tags t CROSS JOIN turn_artifacts a"
        " WHERE t.account = $1 AND t.user_id = $2 AND t.tag = $3"
        " AND (t.said_at, t.session_id, t.kind, t.name) < ($4, $5, $6, $7)"
        " AND a.account = t.account AND a.user_id = t.user_id AND a.session_id = t.session_id AND a.kind = t.kind"
        f" AND a.name = t.name{without('t')}"
    )
    args: list[object] = [space.account, space.user, first, *(after or (LATEST, "", "", "")), limit]
    for tag in others:
        args.append(tag)
        # With an OFFSET, as in `leftovers.without`: of a join, PostgreSQL without statistics compares every pair.
        sql += (
            " AND EXISTS (SELECT 1 FROM turn_tags o WHERE o.account = t.account AND o.user_id = t.user_id"
            f" AND o.tag = ${len(args)} AND o.said_at = t.said_at AND o.session_id = t.session_id"
            " AND o.kind = t.kind AND o.name = t.name LIMIT 1 OFFSET 0)"
        )
    if session_id:
        args.append(session_id)
        sql += f" AND t.session_id = ${len(args)}"
    order = "t.said_at DESC, t.session_id DESC, t.kind DESC, t.name DESC"
    found = [artifact(row) for row in await tx.fetch(f"{sql} ORDER BY {order} LIMIT $8", *args)]
    return await _tags(tx, space, found)


async def _rarest_first(tx: Tx, space: Space, tags: Sequence[str], session_id: str) -> list[str]:
    """The tags, rarest first, as far as _ENOUGH can tell; as they are when there is only one."""
    if len(tags) == 1:
        return list(tags)
    of_session = " AND session_id = $5" if session_id else ""
    some = (session_id,) if session_id else ()
    counts: dict[str, int] = {}
    for tag in tags:
        row = await tx.fetchrow(
            "SELECT COUNT(*) AS n FROM (SELECT 1 FROM turn_tags"
            f" WHERE account = $1 AND user_id = $2 AND tag = $3{of_session} LIMIT $4) s",
            space.account,
            space.user,
            tag,
            _ENOUGH,
            *some,
        )
        counts[tag] = row["n"] if row else 0
    return sorted(tags, key=lambda tag: counts[tag])


async def _tags(tx: Tx, space: Space, artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The artifacts with their tags."""
    tags: dict[tuple[str, str, str], list[str]] = {}
    for start in range(0, len(artifacts), SIZE):
        some = list(artifacts[start : start + SIZE])
        some += some[-1:] * (SIZE - len(some))
        rows = await tx.fetch(
            _TAGS_OF_SOME,
            space.account,
            space.user,
            *(value for one in some for value in (one.session_id, one.sequence, one.kind, one.name)),
        )
        for row in rows:
            tags.setdefault((row["session_id"], row["kind"], row["name"]), []).append(row["tag"])
    return [replace(one, tags=tuple(sorted(set(tags[one.session_id, one.kind, one.name])))) for one in artifacts]
