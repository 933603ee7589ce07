"""Lists the job's spaces: their entries, and all memories of types that have few.

All reads of a job are at one revision, so a listed memory need be neither searched for nor read again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from runekeep.v1 import extractor_service_pb2, memory_service_pb2
from runekeep_extractor.engine.concurrency import side_by_side
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.rpc.calls import NotThere, TooMuch, as_many_as_fit

DEPTH: Final = 2
"""Listed levels of a space: type directories and their contents."""
NODES: Final = 400
_ABSTRACT: Final = 120

Memory = memory_service_pb2.Memory


@dataclass(frozen=True)
class Listed:
    """The listing of a space below `root`. `memories`: by URI, for types whose memories are all listed. Lookups by type
    are cached, because they repeat for each type and each new memory.
    """

    root: str
    entries: Sequence[memory_service_pb2.DirectoryEntry] = ()
    truncated: bool = False
    memories: Mapping[str, Memory] = field(default_factory=dict)

    @cached_property
    def whole(self) -> bool:
        """Returns whether the listing names every memory that exists."""
        return not self.truncated and not any(entry.directory and entry.depth >= DEPTH for entry in self.entries)

    def of(self, kind: str, directory: str) -> list[Memory] | None:
        """Returns the memories of a type below a directory of the space, in the order of the listing; None if not all
        are loaded.
        """
        if not self.whole:
            return None
        there = self.memories
        uris = [uri for uri in self._uris.get(kind, ()) if uri.startswith(f"{directory}/")]
        return [there[uri] for uri in uris] if all(uri in there for uri in uris) else None

    @cached_property
    def _uris(self) -> Mapping[str, Sequence[str]]:
        """URIs by memory type, in the order of the listing."""
        by_kind: dict[str, list[str]] = {}
        for one in self.entries:
            by_kind.setdefault(one.memory_type, []).append(one.uri)
        return by_kind


@dataclass(frozen=True, slots=True)
class ListedMemories:
    """The listings of a job's spaces, which show many memories without a search."""

    spaces: Sequence[Listed] = ()

    @property
    def truncated(self) -> bool:
        """Whether a listing is incomplete because it reached its limit."""
        return any(space.truncated for space in self.spaces)

    def kinds(self, names: Sequence[str]) -> list[str]:
        """Returns the types of `names` that may have memories: all, unless the listings are complete."""
        if not all(space.whole for space in self.spaces):
            return list(names)
        there = {entry.memory_type for space in self.spaces for entry in space.entries}
        return [name for name in names if name in there]

    def all_of(self, kind: str) -> list[Memory] | None:
        """Returns all memories of a type, the latest change first; None if not all are loaded."""
        found: list[Memory] = []
        for space in self.spaces:
            memories = space.of(kind, space.root)
            if memories is None:
                return None
            found += memories
        return sorted(found, key=lambda memory: (-memory.update_time.ToNanoseconds(), memory.uri))

    def within(self, kind: str, directory: str, most: int) -> list[Memory] | None:
        """Returns all memories of a type below a directory; None if there are more than `most`, or not all
        are loaded.
        """
        for space in self.spaces:
            if f"{directory}/".startswith(f"{space.root}/"):
                found = space.of(kind, directory)
                return found if found is not None and len(found) <= most else None
        return None


async def list_spaces(job: Job, roots: Sequence[str], memory_limit: int, type_limit: int) -> ListedMemories:
    """Lists these directories. For one with at most `memory_limit` memories all are loaded. Otherwise the memories of
    types with at most `type_limit` are loaded; none if they exceed one answer.
    """
    return ListedMemories(await side_by_side(_list(job, root, memory_limit, type_limit) for root in roots))


async def _list(job: Job, root: str, memory_limit: int, type_limit: int) -> Listed:
    async def ask(nodes: int, memories: int = 0, each: int = 0) -> extractor_service_pb2.ListForJobResponse:
        return await job.list(
            root, depth=DEPTH, abstract_limit=_ABSTRACT, node_limit=nodes, memory_limit=memories, type_limit=each
        )

    try:
        answer = await ask(NODES, memory_limit, type_limit)
    except NotThere:
        # Nobody has stored a memory there yet.
        return Listed(root)
    except TooMuch:
        shorter = await as_many_as_fit(NODES, ask)
        if shorter is None:
            return Listed(root, truncated=True)
        answer = shorter
    memories = {memory.uri: memory for memory in answer.memories}
    return Listed(root, answer.listing.entries, answer.listing.truncated, memories)
