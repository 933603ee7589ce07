"""Writes a space to the index from its rows, without the embedder, while commits and searches go on."""

from collections.abc import Callable

from runekeep_storage.database import Space, SpaceDatabase
from runekeep_storage.index.base import VectorIndex
from runekeep_storage.indexing import outbox, rows
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.stale_points import delete, find_stale
from runekeep_storage.spaces import spaces, watermarks

PAGE = 500

Progress = Callable[[rows.Table, int], None]
"""Called with a table and the number of its points just written."""


async def write_space(
    database: SpaceDatabase, index: VectorIndex, index_id: str, space: Space, models: Models, progress: Progress
) -> None:
    """Writes a space to an index that lacks it: the memories as of one revision, and all passages.

    The relay leaves the outbox of the space alone until then; that revision becomes the watermark, and the relay does
    the rest. Versions never change, so pages read one after the other show the same revision. Rows whose vector is not
    of the model `models.main` (empty: none) are indexed by their words only and lose that vector: the relay makes a new
    one.
    """
    if models.main:
        await _forget_other_vectors(database, space, models.main)
    revision, _ = await database.read(spaces.revisions, space)
    for table in rows.TABLES:
        after = rows.FIRST
        while True:
            points, last = await database.read(rows.page, space, table, revision, after, PAGE, models)
            if last is None:
                break
            await index.upsert(points)
            # Another server may have finished this space before us, and its relay may have removed some of these points
            # again.
            wrong = await database.read(find_stale, space, points, models, superseded=True)
            if wrong:
                await database.write(delete, space, wrong)
            progress(table, len(points))
            after = last
    # What the store says of the index must survive a power failure.
    await index.flush()
    await database.write(outbox.written, space, index_id, revision)


async def _forget_other_vectors(database: SpaceDatabase, space: Space, model: str) -> None:
    """Drops vectors of other embedders page by page, each page in its own transaction, because a space may have more
    rows than one statement has time for. After a crash, finished pages have nothing left to drop."""
    for table in rows.TABLES:
        after = rows.FIRST
        while True:
            last, some = await database.read(rows.with_other_vectors, space, table, after, PAGE, model)
            if last is None:
                break
            if some:
                await database.write(rows.forget_other_vectors, space, table, after, last, model)
            after = last


async def write_all(database: SpaceDatabase, attachment: Attachment, progress: Progress) -> dict[str, int]:
    """Writes every space that is not in the index to it. Returns the number of points by table.

    `progress` gets a table and the total number of its points written so far.
    """
    counts: dict[str, int] = dict.fromkeys(rows.TABLES, 0)

    def count(table: rows.Table, written: int) -> None:
        counts[table] += written
        progress(table, counts[table])

    index_id = await attachment.attach()
    place = watermarks.FIRST
    while places := await database.read_global(watermarks.elsewhere, index_id, place, 100):
        for place in places:
            _, account, user = place
            await write_space(database, attachment.index, index_id, Space(account, user), attachment.models, count)
    return counts
