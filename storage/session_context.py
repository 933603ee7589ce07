"""Messages that a session's context is made of, from the newest one back, by what they take in tokens: of those that
find no room no parts are read."""

from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Final

from schemas import tokens
from storage.database import Row, Space, Tx

SLICE: Final = 200
"""Messages, or archives, that one statement looks at."""
_NAMES: Final = ("message_id", "peer_id", "turn_id", "speaker")
_UNEXTRACTED: Final = ("pending", "failed")


@dataclass(frozen=True, slots=True)
class Room:
    """For messages: their tokens, and bytes of their parts and names. Names count in bytes alone, so that many short
    messages of long ones find an end too."""

    tokens: int
    bytes: int

    def without(self, row: Row) -> "Room":
        """What is left behind a message; less than nothing where it does not fit."""
        names = sum(len(row[name].encode()) for name in _NAMES)
        return Room(self.tokens - row["tokens"], self.bytes - names - row["tokens"] * tokens.BYTES_A_TOKEN)

    @property
    def overdrawn(self) -> bool:
        return self.tokens < 0 or self.bytes < 0


@dataclass(frozen=True, slots=True)
class Fitting:
    """Rows of messages, oldest first, and the room that they leave; `whole`: that is all of them."""

    rows: list[Row]
    left: Room
    whole: bool


@dataclass(frozen=True, slots=True)
class Unextracted:
    """Archives whose extraction is not finished, or failed: all of their messages, erased ones too, and the newest
    archives as ranges of messages (first and last), newest first; neighbours are one. `below`: the index of the last
    archive in them, or 0 when there is none behind it."""

    ranges: list[tuple[int, int]]
    below: int


async def fitting(tx: Tx, space: Space, session_id: str, first: int, last: int, room: Room) -> Fitting:
    """The newest of the messages `first` to `last`, without a gap, that the room holds together."""
    begin, whole = last + 1, True
    while whole and begin > first:
        rows = await tx.fetch(
            f"SELECT sequence, tokens, {', '.join(_NAMES)} FROM messages"
            " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence >= $4 AND sequence < $5"
            " ORDER BY sequence DESC LIMIT $6",
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
    found = await tx.fetch(
        "SELECT * FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND sequence >= $4 AND sequence <= $5 AND erased = 0 ORDER BY sequence",
        space.account,
        space.user,
        session_id,
        begin,
        last,
    )
    return Fitting(found, room, whole)


async def unextracted(tx: Tx, space: Space, session_id: str, below: int) -> Unextracted:
    """The newest SLICE of such archives with an index below `below`."""
    of_states = [
        await tx.fetch(
            "SELECT archive_index, first_sequence, last_sequence FROM archives"
            " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND state = $4 AND archive_index < $5"
            " ORDER BY archive_index DESC LIMIT $6",
            space.account,
            space.user,
            session_id,
            state,
            below,
            SLICE,
        )
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
    """How many messages the context would have if there were room for all: those from `first_live` on, and those of
    archives that are not extracted; without erased ones."""
    of_session = (space.account, space.user, session_id)
    live = await tx.fetchrow(
        "SELECT last_sequence - $4 + 1 AS n FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        *of_session,
        first_live,
    )
    archived = await tx.fetchrow(
        "SELECT COALESCE(SUM(last_sequence - first_sequence + 1), 0) AS n FROM archives"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND state IN ($4, $5)",
        *of_session,
        *_UNEXTRACTED,
    )
    erased = await tx.fetchrow(
        "SELECT COUNT(*) AS n FROM messages m WHERE account = $1 AND user_id = $2 AND session_id = $3 AND erased = 1"
        " AND (sequence >= $4 OR EXISTS (SELECT 1 FROM archives a WHERE a.account = m.account"
        "   AND a.user_id = m.user_id AND a.session_id = m.session_id AND a.state IN ($5, $6)"
        "   AND a.first_sequence <= m.sequence AND a.last_sequence >= m.sequence))",
        *of_session,
        first_live,
        *_UNEXTRACTED,
    )
    return sum(int(row["n"]) for row in (live, archived) if row) - (int(erased["n"]) if erased else 0)


async def newest_overview(tx: Tx, space: Space, session_id: str) -> tuple[int, str]:
    """Index and overview of the newest finished archive; 0 for none."""
    row = await tx.fetchrow(
        "SELECT archive_index, overview FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND state = 'done' ORDER BY archive_index DESC LIMIT 1",
        space.account,
        space.user,
        session_id,
    )
    return (row["archive_index"], row["overview"]) if row else (0, "")
