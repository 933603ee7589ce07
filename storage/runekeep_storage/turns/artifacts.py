"""Turn memory in its stored form, and the tags that it is found by.

Session, kind and name identify an artifact. A new one replaces the old one in one statement, so that readers always see
one of them, and its tags change in the same transaction. Leftovers of deleted sessions are invisible, see
`runekeep_storage.spaces.pending_deletions`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from runekeep_schemas.turns.stored import ASSISTANT_SIGNAL
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import SIZE, filled
from runekeep_storage.records import Artifact
from runekeep_storage.turns import statements

LATEST = 2**62
"""A time in microseconds that is later than any other."""

_ENOUGH = 256
"""Maximum number of artifacts that are counted per tag to find the rarest tag."""


def artifact(row: Row) -> Artifact:
    """Converts a row with all columns; tags are not among them."""
    return Artifact(**{name: row[name] for name in statements.ARTIFACT_COLUMNS})


async def put(tx: Tx, space: Space, artifact: Artifact, promoted: str = "") -> None:
    """Stores an artifact with its tags and replaces the one of the same session, kind and name; `updated_at` is now.
    `promoted` is stored with the tag ASSISTANT_SIGNAL."""
    stored = replace(artifact, updated_at=tx.now())
    await tx.execute(
        statements.PUT_ARTIFACT,
        space.account,
        space.user,
        stored.session_id,
        stored.kind,
        stored.name,
        *(getattr(stored, name) for name in statements.ARTIFACT_VALUES),
    )
    await _tag(tx, space, stored, promoted)


async def _tag(tx: Tx, space: Space, artifact: Artifact, promoted: str = "") -> None:
    key = (space.account, space.user, artifact.session_id, artifact.sequence, artifact.kind, artifact.name)
    rows = await tx.fetch(statements.TAGS, *key)
    there = {(row["tag"], row["promoted"], row["said_at"]) for row in rows}
    tags = [(tag, promoted if tag == ASSISTANT_SIGNAL else "") for tag in sorted(set(artifact.tags))]
    if there == {(*tag, artifact.said_at) for tag in tags}:
        return
    if there:
        await tx.execute(statements.DELETE_TAGS, *key)
    if tags:
        await tx.execute(
            statements.add_tags(len(tags)),
            *key,
            artifact.said_at,
            *(value for tag in tags for value in tag),
        )


async def get(tx: Tx, space: Space, session_id: str, kind: str, name: str) -> Artifact | None:
    """Returns an artifact without its tags; None if there is none."""
    row = await tx.fetchrow(statements.ARTIFACT, space.account, space.user, session_id, kind, name)
    return artifact(row) if row else None


async def named(tx: Tx, space: Space, session_id: str, kind: str, names: Iterable[str]) -> dict[str, Artifact]:
    """Returns the existing artifacts by name, without their tags."""
    found: dict[str, Artifact] = {}
    for some in filled(names):
        rows = await tx.fetch(statements.ARTIFACTS, space.account, space.user, session_id, kind, *some)
        found |= {row["name"]: artifact(row) for row in rows}
    return found


async def remove(tx: Tx, space: Space, session_id: str, kind: str, name: str) -> bool:
    """Deletes an artifact and its tags; returns whether it existed."""
    there = await get(tx, space, session_id, kind, name)
    if there is None:
        return False
    await _tag(tx, space, replace(there, tags=()))
    await tx.execute(statements.DELETE_ARTIFACT, space.account, space.user, session_id, kind, name)
    return True


async def by_tags(
    tx: Tx, space: Space, tags: Sequence[str], session_id: str, after: tuple[int, str, str, str] | None, limit: int
) -> list[Artifact]:
    """Returns artifacts that have all of the tags (at least one), with their tags, sorted; of all sessions if
    `session_id` is empty. Latest `said_at` first, after (said_at, session_id, kind, name) of the previous page, all
    descending.

    Walks the artifacts of the rarest tag, so the cost depends on how many of them lie between `after` and the page's
    end.
    """
    first, *others = await _rarest_first(tx, space, list(dict.fromkeys(tags)), session_id)
    statement = statements.artifacts_by_tags(len(others), bool(session_id))
    place = after or (LATEST, "", "", "")
    of_session = [session_id] if session_id else []
    rows = await tx.fetch(statement, space.account, space.user, first, *place, limit, *others, *of_session)
    found = [artifact(row) for row in rows]
    return await _tags(tx, space, found)


async def _rarest_first(tx: Tx, space: Space, tags: Sequence[str], session_id: str) -> list[str]:
    """Returns the tags, rarest first; tags with _ENOUGH artifacts or more count as equal. A single tag is not
    counted."""
    if len(tags) == 1:
        return list(tags)
    some = (session_id,) if session_id else ()
    counts: dict[str, int] = {}
    for tag in tags:
        row = await tx.fetchrow(
            statements.count_tagged(bool(session_id)),
            space.account,
            space.user,
            tag,
            _ENOUGH,
            *some,
        )
        counts[tag] = row["n"] if row else 0
    return sorted(tags, key=lambda tag: counts[tag])


async def _tags(tx: Tx, space: Space, artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Returns the artifacts with their tags."""
    tags: dict[tuple[str, str, str], list[str]] = {}
    for start in range(0, len(artifacts), SIZE):
        some = list(artifacts[start : start + SIZE])
        some += some[-1:] * (SIZE - len(some))
        rows = await tx.fetch(
            statements.TAGS_OF_ARTIFACTS,
            space.account,
            space.user,
            *(value for one in some for value in (one.session_id, one.sequence, one.kind, one.name)),
        )
        for row in rows:
            tags.setdefault((row["session_id"], row["kind"], row["name"]), []).append(row["tag"])
    return [replace(one, tags=tuple(sorted(set(tags[one.session_id, one.kind, one.name])))) for one in artifacts]
