"""A store as reads of the tree need it, and everything that can be read of a space."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories import direct_writes, reads
from runekeep_server.memories.tree import grep
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.database import Database, Space
from runekeep_storage.drivers.common.fair_turns import FairSlots
from runekeep_storage.relay.relay import Relay
from runekeep_storage.store import Store

EVERYTHING = 10_000


class NoEmbedders:
    """For a store without an embedder."""

    async def of_space(self, space: Space) -> None:
        return None


@dataclass
class Tree:
    """Of a store, what reading and writing by hand need; the space of one user."""

    database: Database
    registry: Registry
    relay: Relay
    blobs: Blobs
    space: Space
    embedders: NoEmbedders = field(default_factory=NoEmbedders)
    grep_slots: FairSlots = field(default_factory=lambda: FairSlots(2, 1))

    @property
    def store(self) -> Store:
        return cast(Store, self)

    async def write(self, *changes: pb.MemoryMutation) -> pb.WriteMemoriesResponse:
        request = pb.WriteMemoriesRequest(changes=changes)
        return await direct_writes.write(self.store, self.space, request, withhold_secrets=False)

    async def listing(self, uri: str = "", **fields: Any) -> pb.ListDirectoryResponse:
        fields = {"depth": 16, "node_limit": EVERYTHING} | fields
        return await reads.list_(self.store, self.space, pb.ListDirectoryRequest(uri=uri, **fields))

    async def read(self, uri: str, **fields: Any) -> str:
        return (await reads.read(self.store, self.space, pb.ReadDocumentRequest(uri=uri, **fields))).text

    async def get(self, uri: str, **fields: Any) -> pb.Memory:
        """Without what later revisions change of a version."""
        found = (await reads.get(self.store, self.space, pb.GetMemoryRequest(uri=uri, **fields))).memory
        found.ClearField("superseded_revision")
        return found

    async def glob(self, pattern: str, **fields: Any) -> pb.GlobDocumentsResponse:
        fields = {"node_limit": EVERYTHING, "show_hidden": True} | fields
        return await reads.glob_(self.store, self.space, pb.GlobDocumentsRequest(pattern=pattern, **fields))

    async def pages(self, pattern: str, **fields: Any) -> AsyncIterator[pb.GrepDocumentsResponse]:
        request = pb.GrepDocumentsRequest(pattern=pattern, **({"show_hidden": True} | fields))
        while True:
            page = await grep.grep(self.store, self.space, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def grep(self, pattern: str, **fields: Any) -> list[pb.GrepMatch]:
        return [match async for page in self.pages(pattern, **fields) for match in page.matches]

    async def documents(self, **fields: Any) -> dict[str, str]:
        """Every document by its URI, in the order of the tree."""
        listed = (await self.listing(show_hidden=True, **fields)).entries
        return {one.uri: await self.read(one.uri, **fields) for one in listed if not one.directory}

    async def everything(self, **fields: Any) -> dict[str, Any]:
        """All answers about the space; but for times of directories, which the past need not tell."""
        documents = await self.documents(**fields)
        memories = [uri for uri in documents if not uri.rpartition("/")[2].startswith(".")]
        return {
            "listings": [
                _timeless(await self.listing(show_hidden=hidden, depth=depth, **fields))
                for hidden in (False, True)
                for depth in (1, 3, 16)
            ],
            "documents": documents,
            "memories": {uri: await self.get(uri, **fields) for uri in memories},
            "glob": _timeless(await self.glob("**", **fields)),
            "grep": [one.SerializeToString() for one in await self.grep("", regex=True, limit=7, **fields)],
        }


def _timeless(answer: pb.ListDirectoryResponse | pb.GlobDocumentsResponse) -> bytes:
    for entry in answer.entries:
        if entry.directory:
            entry.ClearField("update_time")
    return answer.SerializeToString()


def at_revision(number: int) -> common_pb2.AsOf:
    return common_pb2.AsOf(revision=number)


def at_time(microseconds: int) -> common_pb2.AsOf:
    time = Timestamp()
    time.FromMicroseconds(microseconds)
    return common_pb2.AsOf(time=time)
