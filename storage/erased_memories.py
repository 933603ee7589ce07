"""Memories without what came from erased messages: a version that names one as its source goes, and so do the versions
that were made of it. The memory is again what it was before, as a new version, or it is gone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage import memory_origins, outbox, revisions
from storage.database import Row, Space, Tx
from storage.erased_contexts import out_of_messages
from storage.erased_traces import ArchiveName, out_of_archives, out_of_names, out_of_tasks, that_may_quote
from storage.outbox import Entry
from storage.points import memory_point
from storage.records import MemoryWrite
from storage.revisions import Origin

_BY_ERASURE = json.dumps({"engine": "erasure", "model": "", "version": ""})
_POINTS = 200
"""Points that one entry of the outbox takes out of the index."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """`cut`: URIs of memories that lost versions; `gone`: those of which no version is left; `ended`: how many memories
    are there no more that were; `reverted`: how many went back to an earlier version;
    `versions`: versions that were taken away; `revision`: the one that this made, 0 when there was nothing to do."""

    cut: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    ended: int = 0
    reverted: int = 0
    versions: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class _Cut:
    """A memory: its erased versions, oldest first, and what it goes back to."""

    uri: str
    erased: list[Row]
    before: Row | None

    @property
    def current(self) -> Row | None:
        return next((row for row in self.erased if not row["rev_to"]), None)

    @property
    def back_to(self) -> MemoryWrite | None:
        """A memory that was deleted since stays so."""
        current, row = self.current, self.before
        if current is None or row is None or row["deleted"]:
            return None
        return MemoryWrite(
            uri=self.uri,
            base_version=current["version"],
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
        )


async def take_back(tx: Tx, space: Space, firsts: Mapping[str, int]) -> TakenBack:
    """Takes away, of each memory, the versions from that one on; in one revision, which reads of older ones do not
    see: they lack what was taken away.

    If one message of a run is erased, the whole run is deleted with the version that came from it. Earlier versions
    have rows of their own.
    """
    # Rows may also be left of versions that were taken away before.
    await memory_origins.forget(tx, space, firsts)
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
    entries = [Entry("delete", point_id=" ".join(points[at : at + _POINTS])) for at in range(0, len(points), _POINTS)]
    await outbox.add(tx, space, 0, entries)
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
    of_memory = "SELECT * FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3 AND version"
    key = (space.account, space.user, uri, first)
    erased = await tx.fetch(f"{of_memory} >= $4 ORDER BY version", *key)
    before = await tx.fetchrow(f"{of_memory} < $4 ORDER BY version DESC LIMIT 1", *key)
    return _Cut(uri, erased, before)


async def _writers(tx: Tx, space: Space, cuts: Sequence[_Cut]) -> list[ArchiveName]:
    """The archives whose commits made the versions."""
    found: dict[ArchiveName, None] = {}
    for revision in sorted({row["rev_from"] for cut in cuts for row in cut.erased}):
        row = await tx.fetchrow(
            "SELECT session_id, archive_index FROM commits WHERE account = $1 AND user_id = $2 AND revision = $3",
            space.account,
            space.user,
            revision,
        )
        if row is not None and row["archive_index"]:
            found[row["session_id"], row["archive_index"]] = None
    return list(found)


async def _remove(tx: Tx, space: Space, cut: _Cut) -> None:
    key = (space.account, space.user, cut.uri, cut.erased[0]["version"], cut.erased[-1]["version"])
    of_versions = "WHERE account = $1 AND user_id = $2 AND uri = $3 AND version >= $4 AND version <= $5"
    await tx.execute(f"DELETE FROM memories {of_versions}", *key)
    # The index was yet to be told of them.
    await tx.execute(f"DELETE FROM outbox {of_versions} AND op = 'upsert'", *key)
