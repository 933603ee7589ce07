"""The change of the embedder, in the store: from which embedder to which, how far it is, and which spaces it has
reached.

While it is open, rows may have two vectors: `dense` by the old embedder (`source`), `dense_next` by the new embedder
(`target`). A space is searched by the old embedder until all its rows have both vectors, and by the new embedder from
then on. The row of the change decides, so all servers agree: each reads it in the transaction or snapshot that depends
on it.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, NamedTuple

from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import StoreError
from runekeep_storage.index.base import VectorSpace
from runekeep_storage.indexing import change_statements
from runekeep_storage.indexing.space_walk import BEHIND_USERS
from runekeep_storage.spaces import watermarks

LEASE_US: Final = 20 * 1_000_000
"""How long one server holds a change without a sign of life, in microseconds. Then another server continues it."""


Place = tuple[int, str, str]
"""A place in the order of the spaces that a change has not reached: the change that a space has, and its names."""
BEFORE_ALL: Final[Place] = (-1, "", "")


class ChangeState(StrEnum):
    """`running`, `paused`: vectors of both embedders are kept. `finishing`, `undoing`: those of one are dropped.
    `finished`, `undone`: they are gone."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHING = "finishing"
    FINISHED = "finished"
    UNDOING = "undoing"
    UNDONE = "undone"


OPEN: Final = (ChangeState.RUNNING, ChangeState.PAUSED)
ENDED: Final = (ChangeState.FINISHED, ChangeState.UNDONE)


class ChangeRefused(StoreError):
    """The change cannot go into that state; the message says why, and what to do."""


class Models(NamedTuple):
    """The models of the vectors in `dense` and in `dense_next`; empty for none."""

    main: str
    other: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """The newest change. `name` and `source_name` are names of embedders as in the settings. Times are in microseconds;
    see the migration for the columns."""

    number: int
    state: ChangeState
    source_name: str
    source: VectorSpace
    name: str
    target: VectorSpace
    rows_per_second: int
    started_at: int
    state_at: int
    total_rows: int
    done_rows: int
    rows_per_hour: int
    holder: str
    held_until: int
    problem: str

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def main(self) -> VectorSpace:
        """The space of the vectors in `dense`."""
        return self.target if self.state in (ChangeState.FINISHING, ChangeState.FINISHED) else self.source

    @property
    def other(self) -> VectorSpace | None:
        """The space of the vectors in `dense_next`."""
        return self.target if self.is_open else None

    @property
    def dropped(self) -> VectorSpace | None:
        """The space whose vectors are no longer kept."""
        if self.is_open:
            return None
        return self.source if self.main == self.target else self.target


def of_space(space: VectorSpace | None) -> str:
    """Returns the model of a space as rows name it; empty for a space without vectors."""
    return space.model if space is not None and space.dimension else ""


class Columns(NamedTuple):
    """Where new vectors of a row go, see `columns`."""

    other: str
    dropped: str

    def place(self, dense: bytes | None, model: str) -> tuple[bytes | None, str, bytes | None, str]:
        """Returns the values of `dense`, `dense_model`, `dense_next` and `dense_next_model` for a new row with a vector
        of a model, which may have been replaced since. The relay adds the second vector: a row that names a model for
        `dense_next` and has no vector there waits for it."""
        if dense is None or (self.dropped and model == self.dropped):
            return None, "", None, self.other
        if self.other and model == self.other:
            return None, "", dense, self.other
        return dense, model, None, self.other


async def current(tx: Tx) -> Change | None:
    """Returns the newest change of the store, of all accounts; None if there was none."""
    row = await tx.fetchrow(change_statements.CHANGE)
    if row is None:
        return None
    own = {one.name: row[one.name] for one in fields(Change) if one.name not in ("state", "source", "target")}
    return Change(
        **own,
        state=ChangeState(row["state"]),
        source=VectorSpace(row["source_model"], row["source_dimension"]),
        target=VectorSpace(row["model"], row["dimension"]),
    )


async def with_index(tx: Tx) -> tuple[str, Change | None]:
    """Returns the id of the index that the store is searched by, and the newest change."""
    return await watermarks.index_of_store(tx), await current(tx)


async def columns(tx: Tx) -> Columns:
    """Returns where vectors of new rows go."""
    change = await current(tx)
    return Columns("", "") if change is None else Columns(of_space(change.other), of_space(change.dropped))


async def find_searched_model(tx: Tx, space: Space) -> str | None:
    """Returns the model that the space is searched by now; None if no change is under way."""
    row = await tx.fetchrow(change_statements.SEARCHED_MODEL_OF_SPACE, space.account, space.user)
    return None if row is None or row["model"] is None else str(row["model"])


async def start(
    tx: Tx, source_name: str, source: VectorSpace, name: str, target: VectorSpace, rows_per_second: int
) -> Change:
    """Starts a change, or sets the rate of the open one to the same embedder and resumes it. Raises ChangeRefused."""
    change = await current(tx)
    if change is not None and change.is_open and change.target == target:
        await tx.execute(change_statements.RESUME_CHANGE, rows_per_second, tx.now())
    elif change is not None and change.state not in ENDED:
        raise ChangeRefused(
            f"the embedder is being changed to {change.name} (model {change.target.model}, {change.state}): finish or"
            " undo that first"
        )
    else:
        if change is not None:
            await tx.execute(change_statements.DELETE_CHANGE)
        now = tx.now()
        await tx.execute(
            change_statements.START_CHANGE,
            # Above the numbers that spaces have, also after a rebuild has forgotten the changes before.
            (change.number if change is not None else await _find_highest_number(tx)) + 1,
            source_name,
            source.model,
            source.dimension,
            name,
            target.model,
            target.dimension,
            rows_per_second,
            now,
            now,
        )
    return await _read_current(tx)


async def _find_highest_number(tx: Tx) -> int:
    row = await tx.fetchrow(change_statements.HIGHEST_CHANGE_OF_SPACES)
    return int(row["number"] or 0) if row else 0


async def _read_current(tx: Tx) -> Change:
    change = await current(tx)
    assert change is not None, "it was written just now"
    return change


async def pause(tx: Tx) -> Change:
    """Stops making vectors of old rows. A repeat changes nothing. Raises ChangeRefused."""
    return await _move(tx, ChangeState.PAUSED, OPEN, "there is no change to pause")


async def resume(tx: Tx) -> Change:
    """Goes on after a pause, or sooner after the embedder was away. Raises ChangeRefused."""
    await _move(tx, ChangeState.RUNNING, OPEN, "there is no change to resume")
    # Also of a change that runs: by a new time servers notice that they should try again what they left alone.
    await tx.execute(change_statements.MOVE_CHANGE, ChangeState.RUNNING, tx.now())
    return await _read_current(tx)


async def undo(tx: Tx) -> Change:
    """Lets all spaces be searched by the old embedder again, at once. Raises ChangeRefused once its vectors are
    dropped."""
    states = (*OPEN, ChangeState.UNDOING, ChangeState.UNDONE)
    return await _move(tx, ChangeState.UNDOING, states, "the vectors of the old embedder are dropped")


async def finish(tx: Tx) -> Change:
    """Ends a change that has reached all spaces: the vectors of the old embedder are dropped. Raises ChangeRefused."""
    states = (*OPEN, ChangeState.FINISHING, ChangeState.FINISHED)
    change = await current(tx)
    if change is not None and change.is_open and (left := await spaces_left(tx, change.number)):
        raise ChangeRefused(f"{left} users are still searched by {change.source_name}: wait until none is")
    return await _move(tx, ChangeState.FINISHING, states, "the change was undone")


async def _move(tx: Tx, state: ChangeState, before: tuple[ChangeState, ...], why_not: str) -> Change:
    change = await current(tx)
    if change is None:
        raise ChangeRefused("the embedder of this store was never changed: start with the embedder to change to")
    if change.state not in before:
        raise ChangeRefused(f"{why_not} (the change to {change.name} is {change.state})")
    if change.state != state and change.state not in ENDED:
        await tx.execute(change_statements.MOVE_CHANGE, state, tx.now())
    return await _read_current(tx)


async def end(tx: Tx, number: int) -> None:
    """Records that the vectors of one embedder are gone, rows and index alike."""
    await tx.execute(change_statements.END_CHANGE, number, tx.now())


async def forget(tx: Tx) -> None:
    """Forgets the newest change if it has ended, before the whole index is rebuilt. One that has not ended goes on."""
    await tx.execute(change_statements.FORGET_ENDED_CHANGE)


async def hold(tx: Tx, number: int, holder: str) -> bool:
    """Makes this server the one that works on the change, for LEASE_US; returns False while it is another one."""
    now = tx.now()
    return bool(await tx.execute(change_statements.HOLD_CHANGE, number, holder, now + LEASE_US, now))


async def release(tx: Tx, holder: str) -> None:
    """Lets another server go on at once."""
    await tx.execute(change_statements.RELEASE_CHANGE, holder)


async def report(
    tx: Tx, number: int, holder: str, total_rows: int, done_rows: int, rows_per_hour: int, problem: str
) -> None:
    """Stores the progress for readers; nothing depends on it."""
    await tx.execute(
        change_statements.REPORT_CHANGE,
        number,
        holder,
        total_rows,
        done_rows,
        rows_per_hour,
        problem,
    )


async def spaces_left(tx: Tx, number: int) -> int:
    """Returns how many spaces, over all accounts, the change has not reached; MAX_SPACES_LEFT at most."""
    row = await tx.fetchrow(change_statements.COUNT_SPACES_LEFT, number)
    return int(row["count"]) if row else 0


async def next_spaces(
    tx: Tx, number: int, after: Place, limit: int, left_out: Collection[str] = ()
) -> tuple[list[Space], Place]:
    """Returns the next spaces after `after`, over all accounts, that the change has not reached, and where to go on;
    BEFORE_ALL at the end. Leaves out the accounts `left_out`. Examines at most `limit` spaces; of an account that is
    left out, one for each change that its spaces have."""
    found: list[Space] = []
    for _ in range(limit):
        row = await tx.fetchrow(change_statements.NEXT_SPACE_LEFT, *after, number)
        if row is None:
            return found, BEFORE_ALL
        if row["account"] in left_out:
            after = (row["embedder_change"], row["account"], BEHIND_USERS)
            continue
        after = (row["embedder_change"], row["account"], row["user_id"])
        found.append(Space(row["account"], row["user_id"]))
    return found, after


async def all_spaces(tx: Tx, after: tuple[str, str], limit: int) -> list[Space]:
    """Returns the next spaces over all accounts."""
    found = await tx.fetch(change_statements.SPACES_AFTER, *after, limit)
    return [Space(row["account"], row["user_id"]) for row in found]


async def models_now(tx: Tx, assumed: Models) -> Models:
    """Returns the models of the vectors that points have now. `assumed`: those of a store whose embedder was never
    changed."""
    change = await current(tx)
    return assumed if change is None or change.state in ENDED else models_of(change)


def models_of(change: Change) -> Models:
    return Models(of_space(change.main), of_space(change.other))
