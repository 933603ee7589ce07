"""Selects the messages of a session's context, newest first, within limits of tokens and bytes. Reads the parts of only
those messages that fit."""

from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Final

from runekeep_common import tokens
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.sessions import statements

SLICE: Final = 200
"""Messages, or archives, that one statement reads."""
_UNEXTRACTED: Final = ("pending", "failed")


@dataclass(frozen=True, slots=True)
class Room:
    """Room left for messages: their tokens, and the bytes of their parts and names. Names count only in bytes, so that
    many short messages with long names reach a limit too."""

    tokens: int
    bytes: int

    def without(self, row: Row) -> "Room":
        """Returns the room left after the message; negative if it does not fit."""
        names = sum(len(row[name].encode()) for name in statements.MESSAGE_NAMES)
        return Room(self.tokens - row["tokens"], self.bytes - names - row["tokens"] * tokens.BYTES_A_TOKEN)

    @property
    def overdrawn(self) -> bool:
        return self.tokens < 0 or self.bytes < 0


@dataclass(frozen=True, slots=True)
class Fitting:
    """Rows of messages, oldest first, and the room left. `whole`: all messages fit."""

    rows: list[Row]
    left: Room
    whole: bool


@dataclass(frozen=True, slots=True)
class Unextracted:
    """Archives whose extraction is pending or failed. `ranges`: first and last sequence of their messages, including
    erased ones, newest first, with adjacent archives merged; covers the newest SLICE archives only. `below`: the index
    of the oldest archive covered, or 0 if no older ones follow."""

    ranges: list[tuple[int, int]]
    below: int


async def fitting(tx: Tx, space: Space, session_id: str, first: int, last: int, room: Room) -> Fitting:
    """Returns the newest of the messages `first` to `last`, without a gap, that fit into the room."""
    begin, whole = last + 1, True
    while whole and begin > first:
        rows = await tx.fetch(
            statements.OUTLINES_OF_MESSAGES,
            space.account,
            space.user,
            session_id,
            first,
            begin,
            SLICE,
        )
        if not rows:
            break
        for row in rows:
            left = room.without(row)
            if left.overdrawn:
                whole = False
                break
            room = left
            begin = row["sequence"]
    found = await tx.fetch(statements.CONTEXT_MESSAGES, space.account, space.user, session_id, begin, last)
    return Fitting(found, room, whole)


async def unextracted(tx: Tx, space: Space, session_id: str, below: int) -> Unextracted:
    """Returns the newest SLICE unextracted archives with an index below `below`."""
    of_states = [
        await tx.fetch(statements.ARCHIVES_IN_STATE, space.account, space.user, session_id, state, below, SLICE)
        for state in _UNEXTRACTED
    ]
    rows = sorted(chain(*of_states), key=itemgetter("archive_index"), reverse=True)[:SLICE]
    ranges: list[tuple[int, int]] = []
    for row in rows:
        if ranges and row["last_sequence"] + 1 == ranges[-1][0]:
            ranges[-1] = (row["first_sequence"], ranges[-1][1])
        else:
            ranges.append((row["first_sequence"], row["last_sequence"]))
    return Unextracted(ranges, rows[-1]["archive_index"] if len(rows) == SLICE else 0)


async def belonging(tx: Tx, space: Space, session_id: str, first_live: int) -> int:
    """Returns how many messages the context would have without limits: those from `first_live` on, and those of
    unextracted archives, without erased ones."""
    of_session = (space.account, space.user, session_id)
    live = await tx.fetchrow(statements.COUNT_FROM, *of_session, first_live)
    archived = await tx.fetchrow(statements.COUNT_ARCHIVED, *of_session, *_UNEXTRACTED)
    erased = await tx.fetchrow(statements.COUNT_ERASED, *of_session, first_live, *_UNEXTRACTED)
    return sum(int(row["n"]) for row in (live, archived) if row) - (int(erased["n"]) if erased else 0)


async def newest_overview(tx: Tx, space: Space, session_id: str) -> tuple[int, str]:
    """Returns index and overview of the newest finished archive; (0, "") if there is none."""
    row = await tx.fetchrow(statements.NEWEST_OVERVIEW, space.account, space.user, session_id)
    return (row["archive_index"], row["overview"]) if row else (0, "")
