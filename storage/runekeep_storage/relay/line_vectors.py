"""Makes the vectors of the lines of memories, in the background after the memories are written. Recall ranks lines by
them; a memory that has none yet is ranked by its own vector."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from time import monotonic
from typing import Any, Final

from runekeep_schemas.recall_lines import MAX_LINES_WITH_VECTORS, embedded_line, lines_of_memory, subject
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.embedders import Embedder
from runekeep_storage.indexing import embedder_change, space_walk, statements
from runekeep_storage.indexing.line_vectors import pack
from runekeep_storage.indexing.outbox import Name
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.relay import missing_vectors
from runekeep_storage.relay.account_vectors import AccountVectors
from runekeep_storage.relay.missing_vectors import Missing
from runekeep_storage.relay.passage_relay import Turns

MIN_TEXTS: Final = 8
"""How many lines of a memory get vectors at least, however slow the embedder is."""


class LineVectors:
    """Makes vectors of lines for spaces in turn, each by the embedder that it is searched by."""

    def __init__(self, database: SpaceDatabase, embedders: SpaceEmbedders, wake: Callable[[], None]) -> None:
        """`wake` is called when vectors were written later than in a step."""
        self._database = database
        self._embedders = embedders
        self._wake = wake
        self._vectors = defaultdict[str, AccountVectors](
            lambda: AccountVectors(partial(_write_lines, database), "line_vectors_wait", self._end_attempt)
        )
        """By model: a change of the embedder uses two."""
        self._turns = Turns(database, _waiting_spaces)

    async def step(self) -> tuple[bool, float]:
        """Makes vectors of some memories. Returns whether there may be more to do now, and how many seconds to wait
        before: as long as this took, so that old memories take at most half of the embedder's time."""
        if self._embedders.main is None:
            return False, 0.0
        began = monotonic()
        left_alone = set[str]().union(*(vectors.left_alone() for vectors in self._vectors.values()))
        await self._turns.refill(left_alone)
        may_go_on = False
        while spaces := self._turns.next(1):
            embedder = await self._embedders.of_space(spaces[0])
            if embedder is None or spaces[0].account in self._vectors[embedder.model].left_alone():
                continue
            missing = await self._missing(spaces[0], embedder)
            if missing:
                may_go_on = await self._vectors[embedder.model].make(embedder, missing)
                break
        return may_go_on or self._turns.has_more, monotonic() - began if may_go_on else 0.0

    async def stop(self) -> None:
        """Gives up the vectors that are being made."""
        for vectors in self._vectors.values():
            await vectors.stop()

    async def _missing(self, space: Space, embedder: Embedder) -> list[Missing]:
        """Returns lines of some memories of a space, at least one memory's."""
        most = max(embedder.bulk_texts, MAX_LINES_WITH_VECTORS)
        room = max(self._vectors[embedder.model].room(space.account, [], most), MIN_TEXTS)
        rows = await self._database.read(_lacking, space, 1 + room // MIN_TEXTS)
        missing: list[Missing] = []
        # In a thread, because splitting long texts takes milliseconds.
        for row, texts in zip(rows, await asyncio.to_thread(lambda: [_texts(**one) for one in rows]), strict=True):
            if missing and len(missing) + len(texts) > room:
                break
            missing += [Missing("memories", row, text) for text in texts[:room]]
        return missing

    def _end_attempt(self, _: list[Missing], written: int | None) -> None:
        if written:
            self._wake()


async def _waiting_spaces(tx: Tx, after: Name, limit: int, left_out: Collection[str] = ()) -> tuple[list[Space], Name]:
    return await space_walk.waiting_spaces(tx, (statements.NEXT_SPACE_OF_LINES,), after, limit, left_out)


async def _lacking(tx: Tx, space: Space, limit: int) -> list[dict[str, Any]]:
    """Returns memories without vectors of their lines."""
    return [dict(row) for row in await tx.fetch(statements.MEMORIES_LACKING_LINES, space.account, space.user, limit)]


def _texts(*, uri: str, peer_id: str, abstract: str, content: str, overview: str, **_: object) -> list[str]:
    """Returns the texts that get vectors, at least one: also a memory without lines must count as done."""
    about = subject(uri, peer_id)
    lines = lines_of_memory(abstract, content, overview)[:MAX_LINES_WITH_VECTORS]
    return [embedded_line(about, line) for line in lines] or [about]


async def _write_lines(database: SpaceDatabase, filled: Iterable[tuple[Missing, bytes]], model: str) -> int:
    """Writes the vectors of lines, given memory by memory. Returns for how many memories it did."""
    packed = []
    for _, lines in groupby(filled, lambda one: (one[0].space, one[0].row["uri"])):
        of_lines = list(lines)
        texts = [line.text for line, _ in of_lines]
        packed.append((of_lines[0][0], pack(texts, [vector for _, vector in of_lines])))
    return await missing_vectors.write_vectors(database, packed, model, fill_with=_fill)


async def _fill(tx: Tx, space: Space, filled: Sequence[tuple[Missing, bytes]], model: str) -> None:
    """Writes vectors to memories of one space. Writes nothing if a change of the embedder has made them useless
    meanwhile."""
    if model == (await embedder_change.columns(tx)).dropped:
        return
    for missing, packed in filled:
        row = missing.row
        key = (space.account, space.user, row["uri"], row["version"], row["rev_from"])
        await tx.execute(statements.FILL_LINES, *key, packed, model)
