"""A space written to the index from its rows alone, without the embedder, while commits and searches go on."""

from collections.abc import Callable

from storage import outbox, rows, spaces, watermarks
from storage.attachment import Attachment
from storage.database import Database, Space
from storage.index.base import VectorIndex
from storage.recheck import corrections, put_out

PAGE = 500

Progress = Callable[[rows.Table, int], None]
"""Called with a table and the number of its points that have just been written."""


async def write_space(
    database: Database, index: VectorIndex, index_id: str, space: Space, model: str, progress: Progress
) -> None:
    """Brings a space into an index that it is not in: the memories as of one revision, and all passages.

    The relay leaves the outbox of the space alone until it is there; then that revision is the watermark, and what came
    later is the relay's. Versions are never changed, so pages that are read one after the other are of that one
    revision. Rows whose vector is not of the embedder `model` (empty: none) are indexed by their words, and lose that
    vector: the relay makes them one.
    """
    if model:
        await _forget_other_vectors(database, space, model)
    revision, _ = await database.read(spaces.revisions, space)
    for table in rows.TABLES:
        after = rows.FIRST
        while True:
            points, last = await database.read(rows.page, space, table, revision, after, PAGE, model)
            if last is None:
                break
            await index.upsert(points)
            # Another server may have finished this space before us, and its relay have taken some of them out again.
            wrong = await database.read(corrections, space, points, model, superseded=True)
            if wrong:
                await database.write(put_out, space, wrong)
            progress(table, len(points))
            after = last
    # What the store says of the index must outlive a power cut.
    await index.flush()
    await database.write(outbox.written, space, index_id, revision)


async def _forget_other_vectors(database: Database, space: Space, model: str) -> None:
    """By pages, each in a transaction of its own: a space may have more rows than one statement has time for. Whoever
    takes this up after a crash finds the pages that were done with nothing left to drop."""
    for table in rows.TABLES:
        after = rows.FIRST
        while True:
            last, some = await database.read(rows.with_other_vectors, space, table, after, PAGE, model)
            if last is None:
                break
            if some:
                await database.write(rows.forget_other_vectors, space, table, after, last, model)
            after = last


async def write_all(database: Database, attachment: Attachment, model: str, progress: Progress) -> dict[str, int]:
    """Writes every space that is not in the index to it; the number of points by table.

    `progress` gets a table and how many of its points are written so far.
    """
    counts: dict[str, int] = dict.fromkeys(rows.TABLES, 0)

    def count(table: rows.Table, written: int) -> None:
        counts[table] += written
        progress(table, counts[table])

    index_id = await attachment.attach()
    place = watermarks.FIRST
    while places := await database.read(watermarks.elsewhere, index_id, place, 100):
        for place in places:
            _, account, user = place
            await write_space(database, attachment.index, index_id, Space(account, user), model, count)
    return counts
