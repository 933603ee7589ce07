"""The index made anew from rows alone, without the embedder: on command, and when a server finds it empty."""

from collections.abc import Callable

from storage import outbox, rows
from storage.database import Database
from storage.index.base import VectorIndex

PAGE = 500

Progress = Callable[[str, int], None]
"""Called with a table and how many of its points are written so far."""


async def fill_index(database: Database, index: VectorIndex, model: str, progress: Progress) -> dict[str, int]:
    """Writes every current memory and every passage to an empty index, and moves all watermarks to the newest revision.

    Nobody may be searching or committing meanwhile. Rows whose vector is not of the embedder `model` are indexed by
    their words, and lose that vector: the relay makes them one. A fill that was cut short leaves a mark in the store
    (`outbox.is_behind`) and is to be done again. Gives the number of points by table.
    """
    await database.write(outbox.fall_behind)
    await database.write(rows.forget_other_vectors, model)
    counts = {}
    for table in ("memories", "passages"):
        counts[table] = 0
        after = ("", "", "", 0)
        while True:
            points, last = await database.read(rows.page_for_rebuild, table, after, PAGE, model)
            if last is None:
                break
            await index.upsert(points)
            counts[table] += len(points)
            progress(table, counts[table])
            after = last
    await index.flush()
    await database.write(outbox.caught_up)
    return counts
