"""Removes from memories what came from erased messages: a version that names one as its source is deleted, and so are
the versions made from it. The memory returns to its earlier state as a new version, or is gone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.erasure import statements
from runekeep_storage.erasure.contexts import out_of_messages
from runekeep_storage.erasure.derived_data import (
    ArchiveName,
    out_of_archives,
    out_of_names,
    out_of_tasks,
    that_may_quote,
)
from runekeep_storage.indexing import outbox
from runekeep_storage.indexing.points import memory_point
from runekeep_storage.memories import origins, revisions
from runekeep_storage.memories.revisions import Origin
from runekeep_storage.records import MemoryWrite

_BY_ERASURE = json.dumps({"engine": "erasure", "model": "", "version": ""})


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The result of taking memories back. `cut`: URIs of memories that lost versions; `gone`: those with no version
    left; `ended`: how many memories no longer exist that did; `reverted`: how many went back to an earlier version;
    `versions`: deleted versions; `revision`: the revision that this made, 0 if there was nothing to do."""

    cut: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    ended: int = 0
    reverted: int = 0
    versions: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class _Cut:
    """A memory: its erased versions, oldest first, and the version that it goes back to."""

    uri: str
    erased: list[Row]
    before: Row | None

    @property
    def current(self) -> Row | None:
        return next((row for row in self.erased if not row["rev_to"]), None)

    @property
    def back_to(self) -> MemoryWrite | None:
        """The write that restores the earlier version. None if there is no earlier version or it is a delete, or if the
        memory was deleted since: then it stays deleted. A delete that itself came from the erased message, as the end
        of a renamed memory does, is undone."""
        current, row = self.current, self.before
        is_undone = len(self.erased) == 1 and self.erased[0]["deleted"]
        if row is None or row["deleted"] or (current is None and not is_undone):
            return None
        return MemoryWrite(
            uri=self.uri,
            base_version=current["version"] if current is not None else 0,
            version=self.erased[-1]["version"] + 1,
            memory_type=row["memory_type"],
            peer_id=row["peer_id"],
            fields=row["fields"],
            content=row["content"],
            abstract=row["abstract"],
            overview=row["overview"],
            sources=row["sources"],
            dense=row["dense"],
            dense_model=row["dense_model"],
            sparse=bytes(row["sparse"]),
            happened_at=row["happened_at"],
            tags=tuple(json.loads(row["tags"])),
            created_at=row["created_at"],
        )


async def take_back(tx: Tx, space: Space, firsts: Mapping[str, int]) -> TakenBack:
    """Deletes the versions of each memory from the given one on, in one revision. Reads at older revisions lack the
    deleted versions.

    If one message of a run is erased, the whole run is deleted with the version that came from it. Earlier versions
    have rows of their own.
    """
    # Rows may also be left of versions that were deleted before.
    await origins.forget(tx, space, firsts)
    cuts = [cut for uri, first in sorted(firsts.items()) if (cut := await _cut(tx, space, uri, first)).erased]
    if not cuts:
        return TakenBack()
    writers = await _writers(tx, space, cuts)
    back = [write for cut in cuts if (write := cut.back_to) is not None]
    revision = await revisions.make(tx, space, back, _BY_ERASURE, Origin("erasure"))
    points = []
    for cut in cuts:
        points += [memory_point(space, cut.uri, row["rev_from"]) for row in cut.erased if not row["deleted"]]
        await _remove(tx, space, cut)
    await outbox.remove(tx, space, points)
    gone = [cut.uri for cut in cuts if cut.before is None and cut.back_to is None]
    oldest = min(row["rev_from"] for cut in cuts for row in cut.erased)
    tasks = await out_of_archives(tx, space, writers, firsts, emptied=False)
    await out_of_tasks(tx, space, [*tasks, *await that_may_quote(tx, space, oldest)])
    await out_of_names(tx, space, gone)
    changed = [cut.uri for cut in cuts]
    await out_of_messages(tx, space, frozenset(changed), frozenset(gone))
    return TakenBack(
        cut=changed,
        gone=gone,
        ended=sum(cut.current is not None and cut.back_to is None for cut in cuts),
        reverted=len(back),
        versions=sum(len(cut.erased) for cut in cuts),
        revision=revision,
    )


async def _cut(tx: Tx, space: Space, uri: str, first: int) -> _Cut:
    key = (space.account, space.user, uri, first)
    erased = await tx.fetch(statements.VERSIONS_FROM, *key)
    before = await tx.fetchrow(statements.VERSION_BEFORE, *key)
    return _Cut(uri, erased, before)


async def _writers(tx: Tx, space: Space, cuts: Sequence[_Cut]) -> list[ArchiveName]:
    """Returns the archives whose commits made the versions."""
    found: dict[ArchiveName, None] = {}
    for revision in sorted({row["rev_from"] for cut in cuts for row in cut.erased}):
        row = await tx.fetchrow(statements.ARCHIVE_OF_REVISION, space.account, space.user, revision)
        if row is not None and row["archive_index"]:
            found[row["session_id"], row["archive_index"]] = None
    return list(found)


async def _remove(tx: Tx, space: Space, cut: _Cut) -> None:
    key = (space.account, space.user, cut.uri, cut.erased[0]["version"], cut.erased[-1]["version"])
    await tx.execute(statements.DELETE_VERSIONS, *key)
    # Upserts that the index has not received yet.
    await tx.execute(statements.DELETE_UPSERTS, *key)
