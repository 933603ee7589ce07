"""Refuses a store that vanished, went back in time or was replaced, and writes the marks that reveal this.

The index and the blobs carry a mark of the store that they belong to, see `runekeep_storage.identity.store_identity`.
The marks are compared with the store at the start, and again whenever they are written, so that each server notices
what any of them has seen.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, time_ns
from uuid import uuid4

import structlog

from runekeep_storage.accounts.audit import Call
from runekeep_storage.database import Database
from runekeep_storage.errors import DatabaseDamaged, StoreError, StoreLost
from runekeep_storage.identity import store_identity
from runekeep_storage.identity.store_identity import STORE_ACCOUNT, StoreMark, StoreState
from runekeep_storage.index.base import IndexUnavailable

MARK_SECONDS = 1.0
"""Minimum time between two marks."""
CHECK_SECONDS = 10.0
"""How often a server that writes nothing checks whether the store is still the same."""
RETRY_SECONDS = 10.0
"""Pause after a mark that could not be read or written."""
CLOSE_SECONDS = 3.0
"""Time for the last marks when the server ends."""
_LOOKS = 3
"""Number of checks before an apparent loss counts: another server may be taking over the marks of a restored store at
that moment."""
_LOOK_SECONDS = 0.2

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class MarkedPart:
    """A part that carries a mark. `read` and `write` raise IndexUnavailable or StoreUnavailable; `write` returns False
    if there is no place for the mark yet. `reset` drops the data of another store, if it is derived data. `seconds`:
    minimum time between two marks. `is_derived`: the part can be rebuilt, so it may be missing."""

    name: str
    place: str
    read: Callable[[], Awaitable[str]]
    write: Callable[[str], Awaitable[bool]]
    reset: Callable[[], Awaitable[None]]
    seconds: float = MARK_SECONDS
    is_derived: bool = True
    mark: StoreMark | None = None
    """The mark that was read or written last."""
    is_known: bool = False
    """Whether the mark could be read."""
    is_unmarked: bool = False
    """Whether the part has no mark. A damaged mark counts as one."""
    due_at: float = 0.0

    def needs(self, state: StoreState) -> bool:
        """Whether the mark is older than the state of the store."""
        return self.mark is None or (self.mark.store_id, self.mark.revision) != (state.store_id, state.revision)


@dataclass(frozen=True, slots=True)
class Finding:
    """A part that saw a later revision than the store has, or another store, or whose mark is gone (`mark` None).
    `place` is empty for this server's own memory."""

    name: str
    place: str
    mark: StoreMark | None

    def __str__(self) -> str:
        who = f"the {self.name} ({self.place})" if self.place else f"this {self.name}"
        if self.mark is None:
            return f"{who} has lost the store's mark; perhaps its volume is not mounted, or is a new and empty one"
        at = datetime.fromtimestamp(self.mark.written_at / 1_000_000, UTC)
        return f"{who} saw revision {self.mark.revision} of store {self.mark.store_id} at {at:%F %T} UTC"


class StoreGuard:
    """`store_place`: where the database is, for messages; `accepted`: code of the loss that an operator accepts.
    `on_lost` is called once, if the loss is found while the server runs."""

    def __init__(self, database: Database, store_place: str, parts: Sequence[MarkedPart], accepted: str) -> None:
        self.on_lost: Callable[[StoreLost], None] = lambda error: None
        self._database = database
        self._place = store_place
        self._parts = parts
        self._accepted = accepted
        self._state: StoreState | None = None
        self._seen_at = 0
        self._changes = 0
        self._look_at = 0.0
        self._has_ended = False
        self._task: asyncio.Task[None] | None = None

    async def check_vanished(self) -> None:
        """Checks before a new store is created. Raises StoreLost if marks show that there was one before."""
        await self._read(self._parts)
        found = [Finding(part.name, part.place, part.mark) for part in self._parts if part.mark is not None]
        if found and _code(found) != self._accepted:
            raise self._lost(f"there is no database {self._place}", found)

    async def check(self) -> None:
        """Compares the store with the marks before the server serves anything. Raises StoreLost. An accepted loss gives
        the store a new id, and it takes over the marks. Parts that are unavailable are compared when they are back."""
        try:
            if self._database.damage.finding is None:
                await self._database.write_in_account(store_identity.ensure, STORE_ACCOUNT, uuid4().hex)
            state, found = await self._look(self._parts)
        except DatabaseDamaged as error:
            # The data must stay readable for a rescue, and nothing may be written any more.
            log.warning("store_not_compared", error=str(error))
            return
        if found:
            if _code(found) != self._accepted:
                raise self._lost(self._described(state), found)
            state = await self._accept(state, found)
        elif self._accepted:
            log.warning("accept_data_loss_unused", meaning="nothing is lost; leave the setting out")
        self._see(state)
        await self._take_over(self._parts, state)
        for part in self._parts:
            if part.mark is None:
                part.due_at = monotonic() + part.seconds

    async def check_index(self) -> None:
        """Like `check`, for an index that is about to be opened. Raises IndexUnavailable, StoreLost."""
        if self._state is None:
            return
        parts = [part for part in self._parts if part.name == "index"]
        # At the start `check` has just compared it.
        if self._task is not None:
            state, found = await self._look(parts)
            if found:
                error = self._lost(self._described(state), found, running=True)
                self._end(error)
                raise error
            await self._take_over(parts, state)
        if not all(part.is_known for part in parts):
            raise IndexUnavailable("the mark of the index cannot be read")

    def start(self) -> None:
        """Starts to write marks, unless `check` could not read the store."""
        if self._state is None:
            return
        self._task = asyncio.create_task(self._run(), name="store-marks")

    async def stop(self) -> None:
        """Writes the last marks, so that they record everything that the store has."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if self._has_ended:
            return
        for part in self._parts:
            part.due_at = 0.0
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._mark()
        except (StoreError, TimeoutError) as error:
            log.warning("last_marks_not_written", error=str(error) or type(error).__name__)
        except Exception:
            # Whatever the error, the rest of the server's shutdown must still run.
            log.exception("last_marks_not_written")

    async def _run(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(MARK_SECONDS)
            try:
                await self._mark()
                failures = 0
            except StoreLost as error:
                self._end(error)
                return
            except StoreError as error:
                failures += 1
                if failures.bit_count() == 1:
                    log.warning("store_not_marked", failures=failures, error=str(error))
            except Exception:
                failures += 1
                if failures.bit_count() == 1:
                    log.exception("store_not_marked", failures=failures)

    def _end(self, error: StoreLost) -> None:
        if not self._has_ended:
            self._has_ended = True
            log.error("store_lost", error=str(error))
            self.on_lost(error)

    async def _mark(self) -> None:
        """Makes one pass: raises the revision if anything was written since the last pass, and then writes the marks.
        Raises StoreLost."""
        assert self._state is not None
        now = monotonic()
        due = [part for part in self._parts if part.due_at <= now]
        changes = self._database.changes
        moved = changes != self._changes
        if not moved and not any(part.needs(self._state) for part in due):
            if now >= self._look_at:
                await self._confirm(due)
            return
        # Read before the revision is raised: the marks then cover only committed data.
        await self._read(due)
        known = [part.mark.revision for part in due if part.mark and part.mark.store_id == self._state.store_id]
        state: StoreState | None = None
        if moved and not self._findings(self._state, due, but_ahead=True):
            least = max(self._state.revision, *known, 0)
            state = await self._database.write_in_account(
                store_identity.advance, STORE_ACCOUNT, self._state.store_id, least
            )
        if state is None:
            state = await self._confirm(due)
        else:
            # Other servers may have changed something since. At worst the next pass finds nothing new.
            self._changes = changes + 1
            self._see(state)
        await self._take_over(due, state)
        for part in due:
            await self._write(part, state)
        if state.former_ids and all(part.is_known and _is_own(part.mark, state) for part in self._parts):
            await self._database.write_in_account(store_identity.forget_former, STORE_ACCOUNT, state.store_id)

    async def _confirm(self, parts: Sequence[MarkedPart]) -> StoreState:
        """Returns the state of the store, which must be the store that this server knows. Raises StoreLost."""
        state, found = await self._look(parts)
        if found:
            raise self._lost(self._described(state), found, running=True)
        self._see(state)
        self._look_at = monotonic() + CHECK_SECONDS
        return state

    def _see(self, state: StoreState) -> None:
        self._state = state
        self._seen_at = time_ns() // 1000

    async def _look(self, parts: Sequence[MarkedPart]) -> tuple[StoreState, list[Finding]]:
        """Returns the state of the store, and the parts that contradict it. Marks are read first, so that they are
        never ahead."""
        for left in reversed(range(_LOOKS)):
            await self._read(parts)
            state = await self._database.read_global(store_identity.state)
            found = self._findings(state, parts)
            if not found or not left:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return state, found

    def _findings(self, state: StoreState, parts: Sequence[MarkedPart], *, but_ahead: bool = False) -> list[Finding]:
        """`but_ahead`: ignore marks of this store that are ahead of it, because the state may be an older one."""
        seen = [Finding(part.name, part.place, part.mark) for part in parts if part.mark is not None]
        if self._state is not None:
            own = StoreMark(self._state.store_id, self._state.revision, self._seen_at)
            seen.append(Finding("server", "", own))
        found = [one for one in seen if one.mark is not None and not _fits(one.mark, state, but_ahead)]
        if state.has_marked_blobs and not state.former_ids:
            lost = [part for part in parts if part.is_known and part.is_unmarked and not part.is_derived]
            found.extend(Finding(part.name, part.place, None) for part in lost)
        return found

    async def _accept(self, state: StoreState, found: Sequence[Finding]) -> StoreState:
        """Gives the store a new id, so that the lost data is noticed if it comes back."""
        lost = "; ".join(f"{one.name} {_describe_mark(one.mark)}" for one in found)
        former = [state.store_id, *(part.mark.store_id for part in self._parts if part.mark is not None)]
        subject = f"{self._accepted}: store {state.store_id} at {state.revision}; {lost}"
        call = Call("Server/AcceptDataLoss", "operator", "admin", "", subject, "", "")
        accepted = await self._database.write_global(store_identity.renew, uuid4().hex, former, call)
        log.warning("data_loss_accepted", store=accepted.store_id, before=subject)
        return accepted

    async def _take_over(self, parts: Sequence[MarkedPart], state: StoreState) -> None:
        """Takes over parts of the stores that this one replaces. Raises nothing: a part that is away is taken over when
        it is back."""
        for part in parts:
            if _is_own(part.mark, state):
                continue
            log.warning("store_mark_taken_over", part=part.name, place=part.place, store=state.store_id)
            part.due_at = 0.0
            try:
                await part.reset()
                await part.write(_mark_of(state).to_text())
            except (IndexUnavailable, StoreError) as error:
                log.warning("store_mark_not_taken_over", part=part.name, error=str(error))
            else:
                part.mark = _mark_of(state)

    async def _read(self, parts: Sequence[MarkedPart]) -> None:
        for part in parts:
            try:
                text = await part.read()
                part.mark = StoreMark.from_text(text) if text else None
                part.is_known, part.is_unmarked = True, not text
            except ValueError as error:
                # A half-written file after a power cut. The other part still has its mark.
                log.warning("store_mark_unreadable", part=part.name, place=part.place, error=str(error))
                part.mark, part.is_known, part.is_unmarked = None, True, False
            except (IndexUnavailable, StoreError) as error:
                self._is_away(part, error)

    async def _write(self, part: MarkedPart, state: StoreState) -> None:
        if not part.is_known or not part.needs(state):
            return
        mark = _mark_of(state)
        try:
            is_marked = await part.write(mark.to_text())
        except (IndexUnavailable, StoreError) as error:
            self._is_away(part, error)
            return
        part.mark = mark
        part.due_at = monotonic() + part.seconds
        if is_marked and not part.is_derived and not state.has_marked_blobs:
            await self._database.write_in_account(store_identity.set_blobs_marked, STORE_ACCOUNT, state.store_id)

    def _is_away(self, part: MarkedPart, error: Exception) -> None:
        if part.is_known:
            log.warning("store_mark_away", part=part.name, place=part.place, error=str(error))
        part.is_known = False
        part.due_at = monotonic() + RETRY_SECONDS

    def _described(self, state: StoreState) -> str:
        return f"the database {self._place} is store {state.store_id} at revision {state.revision}"

    def _lost(self, here: str, found: Sequence[Finding], *, running: bool = False) -> StoreLost:
        says = f"the store vanished, went back in time, or is another one: {here}, but {', and '.join(map(str, found))}"
        if running:
            return StoreLost(f"{says}. The server ends; its next start says what to do")
        return StoreLost(
            f"{says}. What was committed since is not in this database. Bring back the database, index and blobs that"
            " belong together, or restore a backup (docs/operate/backup.md). To go on without what is missing, start"
            f" once with --accept-data-loss {_code(found)} (RUNEKEEP_ACCEPT_DATA_LOSS): the store becomes a new one,"
            " its index is made anew, and the audit log keeps that"
        )


def _mark_of(state: StoreState) -> StoreMark:
    return StoreMark(state.store_id, state.revision, time_ns() // 1000)


def _is_own(mark: StoreMark | None, state: StoreState) -> bool:
    return mark is None or mark.store_id == state.store_id


def _fits(mark: StoreMark, state: StoreState, but_ahead: bool) -> bool:
    if mark.store_id == state.store_id:
        return but_ahead or mark.revision <= state.revision
    return state.takes_over(mark.store_id)


def _describe_mark(mark: StoreMark | None) -> str:
    return f"{mark.store_id} at {mark.revision}" if mark is not None else "without a mark"


def _code(found: Sequence[Finding]) -> str:
    """Returns a code for a loss, so that accepting one loss does not accept the next."""
    seen = sorted((one.name, _describe_mark(one.mark)) for one in found if one.place)
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:12]
