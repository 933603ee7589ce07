"""Makes the vectors for a change of the embedder, a few rows of each space in turn, and drops the vectors of the
embedder that is no longer used.

One server does the work at a time; if it ends, another server continues. The rows show what is done, so no vector is
made twice and any server may repeat any step.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final
from uuid import uuid4

import structlog

from runekeep_common import failpoints
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.indexing import change_statements, embedder_change, outbox, rows
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.embedder_change import BEFORE_ALL, ENDED, LEASE_US, Change, ChangeState, Place
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.indexing.statements import NEXT_OF_NEW, NEXT_OF_OLD
from runekeep_storage.relay import missing_vectors
from runekeep_storage.relay.account_vectors import AccountVectors
from runekeep_storage.relay.missing_vectors import Missing, Position, known_types
from runekeep_storage.relay.passage_relay import Turns
from runekeep_storage.spaces import watermarks
from runekeep_storage.tables import BY_NAME

SPACES: Final = 16
"""Number of spaces that get a turn in one step."""
COUNTED_SPACES: Final = 50
"""Number of spaces whose rows are counted in one step."""
PAGE: Final = 500
"""Number of rows whose vectors are dropped in one transaction."""
DROPPED_PAGES: Final = 40
"""Maximum number of such transactions in one step, so that the lease is renewed in time."""
PATIENCE_SECONDS: Final = 60.0
"""How long a space whose old rows all have vectors waits for its newest rows. If it is written all the time, the index
always lacks a few of them."""
TOLERATED: Final = 32
"""Number of new rows, and of points to send again, that may be missing in the index after that. They are found by words
until they have their vectors."""
REPORT_SECONDS: Final = LEASE_US / 4e6

log = structlog.get_logger(__name__)


@dataclass
class _Work:
    """The work of this server on one change, which is lost with it."""

    number: int
    is_counted: bool = False
    counted: Space | None = None
    total: int = 0
    done: int = 0
    reported: int = 0
    rows_per_hour: int = 0
    report_at: float = 0.0
    reported_at: float = field(default_factory=monotonic)
    walked: Place = BEFORE_ALL
    waiting: deque[Space] = field(default_factory=deque)
    positions: dict[Space, Position] = field(default_factory=dict)
    complete_since: dict[Space, float] = field(default_factory=dict)
    """Since when the old rows of a space have had vectors, on the clock `monotonic`."""
    dropped_to: tuple[str, str] = outbox.FIRST
    dropping: tuple[Space, int, rows.Key] | None = None
    """The space after `dropped_to`, and the table and the row in it that was reached."""


class Reembedder:
    """The part of one server in changes of the embedder. The relay runs `step`."""

    def __init__(
        self, database: Database, attachment: Attachment, embedders: SpaceEmbedders, registry: Registry
    ) -> None:
        self._database = database
        self._attachment = attachment
        self._embedders = embedders
        self._registry = registry
        self._types = known_types(registry)
        self._holder = uuid4().hex
        self._new_turns = Turns(database, missing_vectors.waiting_for_next)
        self._work = _Work(0)
        self._renew_at = 0.0
        self._vectors = AccountVectors(
            partial(missing_vectors.write_vectors, database, is_next=True),
            "reembedding_waits",
            self._end_attempt,
        )
        self._state_at = 0
        self._not_before = 0.0
        """The earliest time of the next batch, on the clock `monotonic`."""
        self.on_written: Callable[[], None] = lambda: None
        """Called when something was put into the outbox. The relay sets it."""

    async def step(self, index_id: str) -> tuple[bool, float]:
        """Does a part of the work, if there is any and this server is the one to do it. Returns whether there may be
        more to do now, and for how many seconds to wait before; 0 for none."""
        change = self._attachment.change
        if change is None or change.state in ENDED:
            return False, 0.0
        if change.is_open and not self._embedders.knows_other:
            # Perhaps another server does.
            return False, 0.0
        if change.state_at != self._state_at:
            # Somebody resumed it, perhaps after having mended the embedder.
            self._state_at, self._not_before = change.state_at, 0.0
            self._vectors.end_pauses()
        if wait := self._pause_left():
            return True, wait
        if not await self._holds(change):
            return False, 0.0
        if not change.is_open:
            return await self._drop(change)
        more = await self._make(change, index_id)
        await self._report()
        if self._vectors.problem and not self._vectors.is_making and not more:
            # Perhaps another server reaches the embedder.
            await self.release()
        return more, self._pause_left()

    async def stop(self) -> None:
        """Gives up the vectors that are being made."""
        await self._vectors.stop()

    def _pause_left(self) -> float:
        return max(self._not_before - monotonic(), 0.0)

    async def _holds(self, change: Change) -> bool:
        """Takes or renews the lease."""
        if self._work.number == change.number and monotonic() < self._renew_at:
            return True
        if await self._database.read_global(_is_held_by_another, self._holder):
            self._work = _Work(0)
            return False
        if not await self._database.write_global(embedder_change.hold, change.number, self._holder):
            return False
        if self._work.number != change.number or change.holder != self._holder:
            # Counting all rows again after each failure of the embedder would take longer than the work.
            is_counted, done = change.total_rows >= 0, change.done_rows
            self._work = _Work(change.number, is_counted, None, max(change.total_rows, 0), done, done)
        self._renew_at = monotonic() + REPORT_SECONDS
        return True

    async def release(self) -> None:
        """Lets another server go on at once."""
        self._renew_at = 0.0
        if self._work.number:
            await self._database.write_global(embedder_change.release, self._holder)

    # The vectors

    async def _make(self, change: Change, index_id: str) -> bool:
        work = self._work
        if not work.is_counted:
            await self._count()
            return True
        limit = self._embedders.bulk_texts_of_other
        if change.rows_per_second:
            limit = min(limit, change.rows_per_second)
        # One for new rows and one for old rows, at least.
        missing, walked = await self._next_rows(change, max(limit, 2))
        embedder = self._embedders.other
        may_go_on = await self._vectors.make(embedder, missing) if embedder is not None else False
        is_walked = work.walked == BEFORE_ALL
        if is_walked and not (missing or walked or self._vectors.is_making or work.complete_since):
            # Nothing is left but rows of accounts whose endpoints are left alone, if any.
            self._not_before = monotonic() + self._vectors.pause_left
        if change.rows_per_second:
            self._not_before = max(self._not_before, monotonic()) + len(missing) / change.rows_per_second
        failpoints.reached(failpoints.REEMBED_BEFORE_SWITCH)
        switched = 0
        for space in walked:
            # Its turn came and it had no old rows left: it is complete, or waits for new rows or for the relay.
            since = work.complete_since.setdefault(space, monotonic())
            tolerated = TOLERATED if monotonic() - since >= PATIENCE_SECONDS else 0
            if await self._database.read(_lacks_vectors, space, index_id, self._types, tolerated):
                continue
            if await self._database.write(_switch, space, change.number, index_id, self._types, tolerated):
                work.complete_since.pop(space, None)
                switched += 1
                log.info("space_switched", account=space.account, user=space.user, model=change.target.model)
        # If an endpoint is away, others may work, perhaps for spaces behind those that were seen.
        return may_go_on or bool(switched) or not is_walked

    async def _next_rows(self, change: Change, limit: int) -> tuple[list[Missing], list[Space]]:
        """Returns rows to embed, and spaces whose old rows have all had their turn."""
        work = self._work
        missing: list[Missing] = []
        # New rows of all spaces first: those of spaces that were switched are searched already. But old rows get half
        # of each batch, however much is written.
        for_new = limit - limit // 2 if change.state is ChangeState.RUNNING else limit
        left_alone = self._vectors.left_alone()
        await self._new_turns.refill(left_alone)
        while len(missing) < for_new and (spaces := self._new_turns.next(1)):
            room = self._vectors.room(spaces[0].account, missing, for_new)
            if spaces[0].account not in left_alone and room > 0:
                missing += await self._missing(spaces[0], room, NEXT_OF_NEW)
        walked: list[Space] = []
        if change.state is not ChangeState.RUNNING:
            return missing, walked
        if sum(space.account not in left_alone for space in work.waiting) < SPACES:
            await self._refill(change, left_alone)
        for _ in range(len(work.waiting)):
            if len(missing) >= limit:
                break
            space = work.waiting.popleft()
            room = self._vectors.room(space.account, missing, limit)
            if space.account in left_alone or room <= 0:
                work.waiting.append(space)
                continue
            after = work.positions.get(space, missing_vectors.START)
            some = await self._missing(space, room, NEXT_OF_OLD, after)
            if some:
                work.positions[space] = _behind(after, some)
                work.waiting.append(space)
                missing += some
            else:
                # Rows that could not be written are read again when it comes by the next time.
                work.positions.pop(space, None)
                walked.append(space)
        return missing, walked

    async def _missing(
        self, space: Space, limit: int, lacking: str, after: Position = missing_vectors.START
    ) -> list[Missing]:
        return await self._database.read(missing_vectors.missing, space, self._registry, limit, lacking, after)

    async def _refill(self, change: Change, left_alone: set[str]) -> None:
        work = self._work
        found, work.walked = await self._database.read_global(
            embedder_change.next_spaces, change.number, work.walked, SPACES, left_alone
        )
        known = set(work.waiting)
        work.waiting += [space for space in found if space not in known]

    def _end_attempt(self, missing: list[Missing], written: int | None) -> None:
        work = self._work
        if written is None:
            work.report_at = 0.0
            # Its rows are read again after the pause.
            for one in missing:
                work.positions.pop(one.space, None)
            return
        work.done += written
        if written:
            self.on_written()

    # Progress

    async def _count(self) -> None:
        work = self._work
        after = (work.counted.account, work.counted.user) if work.counted else outbox.FIRST
        spaces = await self._database.read_global(embedder_change.all_spaces, after, COUNTED_SPACES)
        for space in spaces:
            total, done = await self._database.read(_count_rows, space, self._types)
            work.total, work.done = work.total + total, work.done + done
            work.counted = space
        work.is_counted = len(spaces) < COUNTED_SPACES
        work.reported = work.done
        work.reported_at = monotonic()

    async def _report(self) -> None:
        work, now = self._work, monotonic()
        if now < work.report_at or not work.is_counted:
            return
        took, made = now - work.reported_at, work.done - work.reported
        if made and took > 0:
            rate = round(3600 * made / took)
            work.rows_per_hour = (work.rows_per_hour + rate) // 2 if work.rows_per_hour else rate
        work.reported, work.reported_at, work.report_at = work.done, now, now + REPORT_SECONDS
        await self._database.write_global(
            embedder_change.report,
            work.number,
            self._holder,
            max(work.total, work.done),
            work.done,
            work.rows_per_hour,
            self._vectors.problem,
        )

    # The end

    async def _drop(self, change: Change) -> tuple[bool, float]:
        """Drops vectors of one embedder: of some spaces, and after the last one those in the index."""
        age = await self._database.read_global(_age, change)
        if age < outbox.GRACE:
            # Searches that began before still use them.
            return True, (outbox.GRACE - age) / 1e6
        work = self._work
        spaces = await self._database.read_global(embedder_change.all_spaces, work.dropped_to, SPACES)
        pages = DROPPED_PAGES
        for space in spaces:
            reached = work.dropping
            _, table, after = reached if reached is not None and reached[0] == space else (space, 0, rows.FIRST)
            while table < len(rows.TABLES):
                if not pages:
                    return True, 0.0
                pages -= 1
                last = await self._database.write(_drop_page, space, change, rows.TABLES[table], after)
                table, after = (table + 1, rows.FIRST) if last is None else (table, last)
                work.dropping = (space, table, after)
            work.dropped_to = (space.account, space.user)
        if len(spaces) == SPACES:
            return True, 0.0
        assert change.dropped is not None, "the change is not open"
        await self._attachment.index.drop_vectors(change.dropped.model)
        await self._attachment.index.flush()
        await self._database.write_global(embedder_change.end, change.number)
        log.info("embedder_change_ended", state=change.state, model=change.main.model)
        return False, 0.0


def _behind(after: Position, read: list[Missing]) -> Position:
    memories, passages = after
    for one in read:
        if one.table == "memories":
            memories = one.row["uri"], one.row["version"]
        else:
            passages = one.row["session_id"], one.row["sequence"]
    return memories, passages


async def _is_held_by_another(tx: Tx, holder: str) -> bool:
    change = await embedder_change.current(tx)
    return change is not None and change.holder not in ("", holder) and change.held_until >= tx.now()


async def _age(tx: Tx, change: Change) -> int:
    return tx.now() - change.state_at


async def _count_rows(tx: Tx, space: Space, known_types: str) -> tuple[int, int]:
    """Returns how many rows of the space get vectors, and how many have one by the new embedder."""
    total = done = 0
    for count, values in ((change_statements.COUNT_MEMORIES, (known_types,)), (change_statements.COUNT_PASSAGES, ())):
        row = await tx.fetchrow(count, space.account, space.user, *values)
        assert row is not None, "a count is there whatever it is of"
        total, done = total + row["total"], done + row["done"]
    return total, done


async def _lacks_vectors(tx: Tx, space: Space, index_id: str, known_types: str, tolerated: int) -> bool:
    """Returns whether the index may lack vectors of the space, see `_lacks_new`, or any of its old rows has none."""
    if await _lacks_new(tx, space, index_id, known_types, tolerated):
        return True
    # Reads the whole space if it is complete.
    row = await tx.fetchrow(change_statements.LACKS_OLD, space.account, space.user, known_types)
    return row is None or bool(row["lacking"])


async def _lacks_new(tx: Tx, space: Space, index_id: str, known_types: str, tolerated: int) -> bool:
    """Returns whether the index lacks vectors of more than `tolerated` rows written since the change began, or as many
    points that are not sent again yet, or is being written with the space, or an import may bring more."""
    if (await watermarks.standing(tx, space, index_id)).indexed < 0:
        return True
    row = await tx.fetchrow(change_statements.lacks_new(tolerated), space.account, space.user, known_types)
    return row is None or bool(row["lacking"])


async def _switch(tx: Tx, space: Space, number: int, index_id: str, known_types: str, tolerated: int) -> bool:
    """Lets the space be searched by the new embedder, unless it lacks vectors by now. Returns whether it is. The caller
    has found that no old row lacks one; none can appear."""
    change = await embedder_change.current(tx)
    if change is None or change.number != number or change.state is not ChangeState.RUNNING:
        return False
    if await _lacks_new(tx, space, index_id, known_types, tolerated):
        return False
    await tx.execute(change_statements.SWITCH_SPACE, space.account, space.user, number)
    return True


async def _drop_page(tx: Tx, space: Space, change: Change, table: rows.Table, after: rows.Key) -> rows.Key | None:
    """Drops the vectors that are no longer kept from the next PAGE rows, and moves those of a finished change to
    `dense`. Returns the key of the last row, None after the last page."""
    first, second = BY_NAME[table].key
    page = await tx.fetch(change_statements.keys_after(BY_NAME[table]), space.account, space.user, *after, PAGE)
    if not page:
        return None
    last = (page[-1][first], page[-1][second])
    is_finished = change.main == change.target
    await tx.execute(
        change_statements.drop_vectors(BY_NAME[table], is_finished),
        space.account,
        space.user,
        *after,
        *last,
        change.main.model,
    )
    return last if len(page) == PAGE else None
