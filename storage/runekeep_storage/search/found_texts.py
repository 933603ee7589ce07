"""Reads the texts of memories that a search found. It reads them last, only for the results, and only as deeply as the
answer has room for."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.memories import memories
from runekeep_storage.memories.memories import Key
from runekeep_storage.memories.statements import COLUMNS
from runekeep_storage.records import Memory

MAX_ABSTRACT_CHARACTERS: Final = 4000
"""Maximum length of an abstract in a search result. One character more is read of longer ones, which edits can make."""
RESULT_BYTES: Final = 1024
"""Bytes of a result besides its texts: URI, times, ranks."""
_SOURCE_GROWTH: Final = 4
"""Ratio of the size of a memory's source messages in an answer to their size in the store."""
_SIZES: Final = (
    "octet_length(m.abstract) AS abstract_bytes, octet_length(m.overview) AS overview_bytes,"
    f" octet_length(m.content) + octet_length(m.fields) + {_SOURCE_GROWTH} * octet_length(m.sources) AS rest_bytes"
)


class Depth(IntEnum):
    """How much of a memory is read. Each level includes those before it."""

    ABSTRACT = 1
    OVERVIEW = 2
    FULL = 3


@dataclass(frozen=True, slots=True)
class Room:
    """The room for the memories of a search, in bytes of the answer. `depth`: the deepest wanted level; `total`: for
    all memories; `each`: for one. The first memory may exceed `total`, but not `each`. `whole`: a memory that cannot be
    read at the wanted depth is left out instead of being read less deeply."""

    depth: Depth
    total: int
    each: int
    whole: bool = False


ROOM_FOR_ALL: Final = Room(Depth.FULL, 2**62, 2**62)
ROOM_FOR_ABSTRACTS: Final = Room(Depth.ABSTRACT, 2**62, 2**62)


@dataclass(frozen=True, slots=True)
class Outline:
    """A memory with its abstract only, and the sizes of its texts in bytes; `rest`: content, fields and sources."""

    memory: Memory
    abstract: int
    overview: int
    rest: int

    @property
    def key(self) -> Key:
        return self.memory.uri, self.memory.version

    @property
    def least(self) -> int:
        """Bytes that the memory takes with its abstract only."""
        return RESULT_BYTES + len(self.memory.abstract.encode())


async def outlines(
    tx: Tx, space: Space, keys: Sequence[Key], revision: int, *, with_fields: bool
) -> dict[Key, Outline]:
    """Returns the given versions that are alive at the revision."""
    columns = _COLUMNS[Depth.ABSTRACT]
    if with_fields:
        columns = columns.replace("'{}' AS fields", "m.fields")
    rows = await memories.rows_alive(tx, space, keys, revision, f"{columns}, {_SIZES}")
    return {key: _outline(row) for key, row in rows.items()}


async def read(
    tx: Tx, space: Space, found: Sequence[Outline], revision: int, room: Room, taken: int
) -> dict[Key, tuple[Memory, Depth]]:
    """Returns the memories of a search, given best first, each as deeply as there is room. `taken`: bytes that other
    results take."""
    depths = _depths(found, room, taken)
    read = {one.key: (one.memory, Depth.ABSTRACT) for one in found if depths.get(one.key) is Depth.ABSTRACT}
    for depth in (Depth.OVERVIEW, Depth.FULL):
        wanted = [key for key, one in depths.items() if one is depth]
        there = await memories.alive(tx, space, wanted, revision, _COLUMNS[depth])
        read |= {key: (memory, depth) for key, memory in there.items()}
    return read


def _depths(found: Sequence[Outline], room: Room, taken: int) -> dict[Key, Depth]:
    left = room.total - taken
    if not room.whole:
        # Each memory comes at least with its abstract.
        left -= sum(one.least for one in found)
    depths: dict[Key, Depth] = {}
    is_first = True
    for one in found:
        depth, cost = _deepest(one, room, max(left, room.each) if is_first else left)
        if depth is None:
            continue
        left -= cost
        is_first = is_first and depth is Depth.ABSTRACT
        depths[one.key] = depth
    return depths


def _deepest(one: Outline, room: Room, left: int) -> tuple[Depth | None, int]:
    """Returns how deeply a memory can be read, and the bytes that this takes beyond the reserved minimum; None: not at
    all."""
    each = 0 if room.whole else one.least
    overview = RESULT_BYTES + one.abstract + one.overview
    for depth, size in ((Depth.FULL, overview + one.rest), (Depth.OVERVIEW, overview), (Depth.ABSTRACT, one.least)):
        if depth > room.depth or (room.whole and depth < room.depth):
            continue
        if (depth is Depth.ABSTRACT and not room.whole) or (size <= room.each and size - each <= left):
            return depth, size - each
    return None, 0


def _outline(row: Row) -> Outline:
    columns = dict(row)
    sizes = [columns.pop(name) for name in ("abstract_bytes", "overview_bytes", "rest_bytes")]
    return Outline(memories.memory(columns), *sizes)


_WITHOUT_REST: Final = COLUMNS.replace("m.fields, m.content", "'{}' AS fields, '' AS content").replace(
    "m.sources", "'[]' AS sources"
)
_COLUMNS: Final = {
    Depth.FULL: COLUMNS,
    Depth.OVERVIEW: _WITHOUT_REST,
    Depth.ABSTRACT: _WITHOUT_REST.replace(
        "m.abstract, m.overview", f"substr(m.abstract, 1, {MAX_ABSTRACT_CHARACTERS + 1}) AS abstract, '' AS overview"
    ),
}
