"""Decides which existing memories the model sees, how much of each, and in which order."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Final

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.engine.tool_counts import counted_by_system
from runekeep_extractor.pipeline.memory_names import name_words
from runekeep_extractor.prompts.records import Known, brief_line, memory_line
from runekeep_schemas.documents.filenames import render_filename
from runekeep_schemas.documents.merge import split_words
from runekeep_schemas.memory_types.model import Field, MemoryType
from runekeep_schemas.memory_types.plans import PLANS
from runekeep_schemas.memory_types.templates import placeholders

# Bytes for the texts of one memory. Characters would be the wrong unit: Chinese takes three bytes for each.
_MAX_TEXT_BYTES: Final = 4000
# A shorter first word of a name, such as "Dr" or "The", says too little.
_MIN_FIRST_WORD: Final = 4
_MIN_NAME: Final = 3

Memory = memory_service_pb2.Memory


class ShownMemories:
    """Orders and formats existing memories for a conversation.

    The documents of a space, such as the profile, come first, then what the talk names, plans, other types that are
    edited, types that are only added to, and execution types. Memories of add-only types are shown by name and
    abstract; those of tools and skills only if they were called.
    """

    def __init__(self, job: Job, messages: Sequence[common_pb2.Message]) -> None:
        long_term = frozenset(job.assignment.plan.long_term_types)
        self._ranks: dict[str, int] = {}
        self._brief: set[str] = set()
        self._counted: set[str] = set()
        called = {name for message in messages for name in called_names(message)}
        called |= {_name(one.uri) for one in job.usage.skills}
        called = {name for name in called if name.strip()}
        self._called: set[str] = set()
        for kind in job.memory_types:
            is_brief = kind.operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY
            self._ranks[kind.name] = 5 if kind.name not in long_term else 4 if is_brief else 3
            if is_brief:
                self._brief.add(kind.name)
            if counted_by_system(kind):
                self._counted.add(kind.name)
                self._called |= {_file_name(kind, name) for name in called}
        self._ranks[PLANS] = 2
        said = (part.text.text for message in messages for part in message.parts if part.HasField("text"))
        self._words = f" {' '.join(split_words(' '.join(said).casefold()))} "
        self._records: dict[str, str] = {}

    def is_left_out(self, uri: str, kind: str) -> bool:
        """Returns whether a memory is of a tool or skill that was not called."""
        return kind in self._counted and uri.rpartition("/")[2] not in self._called

    def is_named(self, uri: str, kind: str) -> bool:
        """Returns whether the talk names a memory that edits change: by its whole name, or by the first word of it."""
        if kind in self._brief or kind in self._counted:
            return False
        name = name_words(_name(uri))
        whole = "".join(name)
        if len(whole) < (_MIN_NAME if whole.isascii() else 2):
            return False
        first = [name[0]] if len(name[0]) >= _MIN_FIRST_WORD else []
        return any(f" {text} " in self._words for text in (" ".join(name), *first))

    def rank(self, uri: str, kind: str) -> int:
        """Returns the place of a memory among others; the lowest comes first."""
        below = uri.partition("/memories/")[2]
        if below and "/" not in below:
            return 0
        return 1 if self.is_named(uri, kind) else self._ranks.get(kind, 5)

    def in_order(self, memories: Iterable[Memory]) -> list[Memory]:
        """Returns the memories to show, the most important first. Those of one rank alternate between types, in the
        given order.
        """
        ranked: list[tuple[int, int, Memory]] = []
        count: Counter[tuple[int, str]] = Counter()
        for one in memories:
            if not self.is_left_out(one.uri, one.memory_type):
                rank = self.rank(one.uri, one.memory_type)
                ranked.append((rank, count[rank, one.memory_type], one))
                count[rank, one.memory_type] += 1
        return [one for _, _, one in sorted(ranked, key=itemgetter(0, 1))]

    def record(self, memory: Memory, known: Known) -> str:
        """Returns the line that shows a memory, and records it in `known`. Lines are cached: most measured ones are
        shown as well.
        """
        known[memory.uri] = memory.memory_type
        if memory.uri not in self._records:
            self._records[memory.uri] = (
                brief_line(memory.uri, memory.memory_type, memory.abstract)
                if memory.memory_type in self._brief
                else self._cut(memory, len(self._line(memory, 0).encode()) + _MAX_TEXT_BYTES)
            )
        return self._records[memory.uri]

    def cut_record(self, memory: Memory, room: int) -> str:
        """Returns the line of a memory, cut to `room` bytes; empty if it cannot be cut that far."""
        return "" if memory.memory_type in self._brief else self._cut(memory, room)

    def size(self, memory: Memory) -> int:
        """Returns the bytes of the line that shows a memory."""
        return len(self.record(memory, {}).encode())

    def _cut(self, memory: Memory, room: int) -> str:
        whole = self._line(memory, _MAX_TEXT_BYTES)
        if len(whole.encode()) <= room:
            return whole
        lengths = range(_MAX_TEXT_BYTES)
        length = bisect_right(lengths, room, key=lambda length: len(self._line(memory, length).encode())) - 1
        return self._line(memory, length) if length > 0 else ""

    def _line(self, memory: Memory, length: int) -> str:
        """Returns the line of a memory whose texts have at most `length` characters in all."""
        return memory_line(memory, {}, length, without=self._counters(memory))

    def _counters(self, memory: Memory) -> Collection[str]:
        """Returns the fields that the system counts."""
        if memory.memory_type not in self._counted:
            return ()
        return [name for name, value in memory.fields.items() if value.HasField("int64_value")]


def called_names(message: common_pb2.Message) -> set[str]:
    """Returns the names of the tools and skills that a message calls."""
    names = set()
    for part in message.parts:
        if part.HasField("tool"):
            names.update({part.tool.tool_name, part.tool.skill_name} - {""})
    return names


def _file_name(kind: memory_service_pb2.MemoryType, name: str) -> str:
    """Returns the file name of the memory of a tool or skill."""
    (key,) = placeholders(kind.filename_template)
    shape = MemoryType(kind.name, "", kind.directory, kind.filename_template, fields=(Field(key),))
    return render_filename(shape, {key: name})


def _name(uri: str) -> str:
    return uri.rpartition("/")[2].removesuffix(".md")
