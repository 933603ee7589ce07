"""Makes the vectors of the lines of memories, in the background after the memories are written. Recall ranks lines by
them; `runekeep_storage.search.line_cosines` says what counts while some are missing."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from time import monotonic
from typing import Any, Final

from runekeep_schemas.recall_lines import MAX_LINES_WITH_VECTORS, embedded_line, lines_of_memory, subject
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.indexing import embedder_change, space_walk, statements
from runekeep_storage.indexing.line_vectors import pack
from runekeep_storage.indexing.outbox import Name
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.relay import missing_vectors
from runekeep_storage.relay.account_vectors import LATE_SECONDS, AccountVectors
from runekeep_storage.relay.missing_vectors import Missing
from runekeep_storage.relay.passage_relay import Turns

MAX_TEXTS: Final = 16
"""Maximum number of lines in one call, unless one memory has more."""


class LineVectors:
    """Makes vectors of lines for spaces in turn, each by the embedder that it is searched by. After each call it pauses
    for as long as the call took, so that old memories take at most half of an embedder's time."""

    def __init__(self, database: SpaceDatabase, embedders: SpaceEmbedders, wake: Callable[[], None]) -> None:
        """`wake` is called when a pause is over."""
        self._database = database
        self._embedders = embedders
        self._wake = wake
        self._vectors = defaultdict[str, AccountVectors](
            lambda: AccountVectors(partial(_write_lines, database), "line_vectors_wait", self._end_attempt)
        )
        """By model: a change of the embedder uses two."""
        self._turns = Turns(database, _waiting_spaces)
        self._after: dict[Space, str] = {}
        """URI of the last memory of the walk through a space. A memory whose lines get no vectors is passed over until
        the next walk."""
        self._began: dict[str, float] = {}
        """When the call that is under way began, by account."""
        self._paused: dict[str, float] = {}
        """Until when an account is left alone, whose endpoint may be slow."""
        self._not_before = 0.0
        """Until when all are. Like all times here on the clock `monotonic`."""

    async def step(self) -> bool:
        """Makes vectors of some memories of one space. Returns whether there is more to do at once."""
        now = monotonic()
        if self._embedders.main is None or now < self._not_before:
            return False
        self._paused = {account: until for account, until in self._paused.items() if until > now}
        left_alone = self._paused.keys() | set().union(*(one.left_alone() for one in self._vectors.values()))
        await self._turns.refill(left_alone)
        while spaces := self._turns.next(1):
            space = spaces[0]
            if space.account in left_alone:
                continue
            embedder = await self._embedders.of_space(space)
            if embedder is None:
                continue
            vectors = self._vectors[embedder.model]
            if missing := await self._missing(space, vectors):
                self._began[space.account] = monotonic()
                await vectors.make(embedder, missing)
                return vectors.is_making and self._turns.has_more
        return self._turns.has_more

    async def stop(self) -> None:
        """Gives up the vectors that are being made."""
        for vectors in self._vectors.values():
            await vectors.stop()

    async def _missing(self, space: Space, vectors: AccountVectors) -> list[Missing]:
        """Returns all lines of some memories of a space, of one at least."""
        room = vectors.room(space.account, [], MAX_TEXTS)
        after = self._after.pop(space, "")
        rows = await self._database.read(_lacking, space, after, room)
        if not rows and after:
            rows = await self._database.read(_lacking, space, "", room)
            after = ""
        if rows:
            self._after[space] = after
        missing: list[Missing] = []
        # In a thread, because splitting long texts takes milliseconds.
        for row, texts in zip(rows, await asyncio.to_thread(lambda: [_texts(**one) for one in rows]), strict=True):
            if missing and len(missing) + len(texts) > room:
                break
            missing += [Missing("memories", row, text) for text in texts]
        return missing

    def _end_attempt(self, rows: list[Missing], written: int | None) -> None:
        space, last = rows[0].space, rows[-1].row["uri"]
        # After a failure of several memories, one alone shows which of them it is.
        if written is not None or rows[0].row["uri"] == last:
            self._after[space] = last
        now = monotonic()
        took = now - self._began.pop(space.account, now)
        self._paused[space.account] = now + took
        pause = min(took, LATE_SECONDS)
        self._not_before = max(self._not_before, now + pause)
        # The loop may call a little early, and the step would wait for a poll.
        asyncio.get_running_loop().call_later(pause + 0.01, self._wake)


async def _waiting_spaces(tx: Tx, after: Name, limit: int, left_out: Collection[str] = ()) -> tuple[list[Space], Name]:
    return await space_walk.waiting_spaces(tx, (statements.NEXT_SPACE_OF_LINES,), after, limit, left_out)


async def _lacking(tx: Tx, space: Space, after: str, limit: int) -> list[dict[str, Any]]:
    """Returns memories without vectors of their lines, in the order of their URIs."""
    found = await tx.fetch(statements.MEMORIES_LACKING_LINES, space.account, space.user, after, limit)
    return [dict(row) for row in found]


def _texts(*, uri: str, peer_id: str, abstract: str, content: str, overview: str, **_: object) -> list[str]:
    """Returns the texts that get vectors, at least one: also a memory without lines must count as done."""
    about = subject(uri, peer_id)
    lines = lines_of_memory(abstract, content, overview)[:MAX_LINES_WITH_VECTORS]
    # Endpoints refuse an empty text.
    return [embedded_line(about, line) for line in lines] or [about or uri]


async def _write_lines(database: SpaceDatabase, filled: Iterable[tuple[Missing, bytes]], model: str) -> int:
    """Writes the vectors of lines, given memory by memory. Returns for how many memories it did."""
    # In a thread, because packing many long vectors takes milliseconds.
    packed = await asyncio.to_thread(_pack_memories, filled)
    return await missing_vectors.write_vectors(database, packed, model, fill_with=_fill)


def _pack_memories(filled: Iterable[tuple[Missing, bytes]]) -> list[tuple[Missing, bytes]]:
    packed = []
    for _, lines in groupby(filled, lambda one: (one[0].space, one[0].row["uri"])):
        of_lines = list(lines)
        texts = [line.text for line, _ in of_lines]
        packed.append((of_lines[0][0], pack(texts, [vector for _, vector in of_lines])))
    return packed


async def _fill(tx: Tx, space: Space, filled: Sequence[tuple[Missing, bytes]], model: str) -> int:
    """Writes vectors to memories of one space, and returns to how many. Writes nothing if a change of the embedder has
    made them useless meanwhile."""
    if model == (await embedder_change.columns(tx)).dropped:
        return 0
    written = 0
    for missing, packed in filled:
        row = missing.row
        key = (space.account, space.user, row["uri"], row["version"], row["rev_from"])
        written += await tx.execute(statements.FILL_LINES, *key, packed, model)
    return written
