"""Memories of a user: search, versions, and changes made by hand."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Unpack

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.connection.errors import AbortedError, NotFoundError
from runekeep.client.memories.changes import DeleteMemory, EditMemory, FieldEdit, MemoryChange, PutMemory
from runekeep.client.memories.requests import SearchOptions, find_request, view_number
from runekeep.client.memories.responses import search_explanation_from_wire, search_results_from_wire
from runekeep.client.memories.results import Memory, MemoryTypes, SearchExplanation, SearchResults, WrittenMemories
from runekeep.client.wire.arguments import Moment, ViewName, refuse_unknown
from runekeep.client.wire.proto_json import to_json
from runekeep.client.wire.values import Scalar
from runekeep.v1 import memory_service_pb2

_PAGE = 200


class UserMemories:
    """The memories of a user; every AsyncClient is this too."""

    _connection: Connection

    async def find(
        self,
        query: str,
        target_uri: str = "",
        limit: int = 10,
        score_threshold: float | None = None,
        filter: Mapping[str, Scalar] | None = None,
        *,
        memory_types: Sequence[str] = (),
        kinds: Sequence[Literal["memory", "passage"]] = (),
        view: ViewName = "abstract",
        min_revision: int = 0,
        peers: Sequence[str] = (),
        tags: Sequence[str] = (),
        sessions: Sequence[str] = (),
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        as_of: Moment | None = None,
        explain: bool = False,
        min_relevance: float | None = None,
    ) -> SearchResults:
        """Searches memories and archived conversation, best first.

        `target_uri` limits it to documents below that URI. `filter` compares fields of memories for equality.
        `min_revision`, from a commit's result, waits until that revision can be found. In `peers`, "" is the user. All
        `tags` must match. `sessions` are URIs or ids. Results are from `start_time` on and before `end_time`; a time
        without a zone is local. `as_of`, a revision or a time, searches the memories and archives of that state.
        `explain` adds the parts of each score to `detail`. `min_relevance`, from 0 to 1, leaves out what is less
        relevant.

        ```python
        for result in client.find("Where do I live?", limit=5).results:
            print(result.score, result.uri, result.abstract or result.text)
        ```
        """
        request = find_request(
            query,
            target_uri=target_uri,
            limit=limit,
            score_threshold=score_threshold,
            filter=filter,
            memory_types=memory_types,
            kinds=kinds,
            view=view,
            min_revision=min_revision,
            peers=peers,
            tags=tags,
            sessions=sessions,
            start_time=start_time,
            end_time=end_time,
            as_of=as_of,
            explain=explain,
            min_relevance=min_relevance,
        )
        response = await self._connection.call(self._connection.stubs.memories.FindMemories, request)
        return search_results_from_wire(response)

    async def explain_search(
        self, uri: str, query: str, *, message_id: str = "", **search: Unpack[SearchOptions]
    ) -> SearchExplanation:
        """Says why a memory, or a message, is or is not among the results of a search.

        `uri` names a memory; for the message `message_id` its session. `search` are the arguments of `find`; TypeError
        is raised for others. See `outcomes.OUTCOMES` for sentences.

        ```python
        why = client.explain_search("viking://user/robin/memories/profile.md", "Where do I live?", limit=5)
        print(why.outcome, why.rank, why.candidates)
        ```
        """
        refuse_unknown(search, SearchOptions, "explain_search")
        request = memory_service_pb2.ExplainSearchRequest(
            search=find_request(query, **search), uri=uri, message_id=message_id
        )
        response = await self._connection.call(self._connection.stubs.memories.ExplainSearch, request)
        return search_explanation_from_wire(response)

    async def write_memories(
        self, changes: Sequence[MemoryChange], *, request_id: str | None = None
    ) -> WrittenMemories:
        """Changes memories by hand, as one revision: all changes or none. Each memory may occur once.

        Raises AbortedError (`VERSION_MISMATCH`) if a memory is not at its `base_version`, and FailedPreconditionError
        if a replacement does not apply (`PATCH_NOT_APPLICABLE`) or the type forbids the change (`WRITE_NOT_ALLOWED`).

        ```python
        from runekeep import PutMemory

        change = PutMemory("preferences", {"topic": "tea", "content": "Green tea, no sugar."})
        print(client.write_memories([change]).revision)
        ```
        """
        request = memory_service_pb2.WriteMemoriesRequest(
            changes=[change.to_wire() for change in changes], request_id=request_id or new_request_id()
        )
        response = await self._connection.call(self._connection.stubs.memories.WriteMemories, request)
        return WrittenMemories(to_json(response))

    async def put_memory(
        self,
        memory_type: str,
        fields: Mapping[str, Scalar],
        *,
        base_version: int = 0,
        peer_id: str = "",
        abstract: str = "",
        overview: str = "",
        request_id: str | None = None,
    ) -> Memory:
        """Writes one whole memory; see PutMemory and `write_memories`.

        ```python
        memory = client.put_memory("preferences", {"topic": "tea", "content": "Green tea, no sugar."})
        print(memory.uri, memory.version)
        ```
        """
        change = PutMemory(memory_type, fields, base_version, peer_id, abstract, overview)
        return (await self.write_memories([change], request_id=request_id)).memories[0]

    async def edit_memory(
        self, uri: str, fields: Mapping[str, FieldEdit], *, base_version: int, request_id: str | None = None
    ) -> Memory:
        """Changes fields of one memory; see EditMemory and `write_memories`.

        ```python
        memory = client.get_memory("viking://user/robin/memories/preferences/tea.md")
        client.edit_memory(memory.uri, {"content": "Black tea."}, base_version=memory.version)
        ```
        """
        change = EditMemory(uri, fields, base_version)
        return (await self.write_memories([change], request_id=request_id)).memories[0]

    async def delete_memory(self, uri: str, *, base_version: int, request_id: str | None = None) -> Memory:
        """Deletes one memory; see `write_memories`. Returns the version that records the deletion.

        ```python
        memory = client.get_memory("viking://user/robin/memories/preferences/tea.md")
        client.delete_memory(memory.uri, base_version=memory.version)
        ```
        """
        change = DeleteMemory(uri, base_version)
        return (await self.write_memories([change], request_id=request_id)).memories[0]

    async def forget(self, uri: str, *, request_id: str | None = None) -> Memory:
        """Deletes one memory as it is now, whichever version that is. Returns the version that records the deletion.

        Its versions stay readable; `erase` removes them too. To repeat a call, give the same `request_id`. Raises
        NotFoundError if there is no such memory.

        ```python
        client.forget(client.find("Where do I live?", kinds=["memory"]).results[0].uri)
        ```
        """
        request = memory_service_pb2.GetMemoryRequest(uri=uri, view=view_number("abstract"))
        try:
            current = await self._connection.call(self._connection.stubs.memories.GetMemory, request)
        except NotFoundError as missing:
            if not request_id:
                raise
            versions = memory_service_pb2.ListMemoryVersionsRequest(uri=uri, page_size=1)
            page = await self._connection.call(self._connection.stubs.memories.ListMemoryVersions, versions)
            before = page.memories[0].version - 1
            try:
                # The server has stored the answer if the call with this `request_id` deleted the memory.
                return await self.delete_memory(uri, base_version=before, request_id=request_id)
            except AbortedError:
                raise missing from None
        return await self.delete_memory(uri, base_version=current.memory.version, request_id=request_id)

    async def versions(self, uri: str) -> AsyncGenerator[Memory, None]:
        """Lists the versions of one memory, newest first, including deletions.

        ```python
        for memory in client.versions("viking://user/robin/memories/profile.md"):
            print(memory.version, memory.update_time, memory.deleted)
        ```
        """
        request = memory_service_pb2.ListMemoryVersionsRequest(uri=uri, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.memories.ListMemoryVersions, request):
            for memory in page.memories:
                yield Memory(to_json(memory))

    async def memory_types(self) -> MemoryTypes:
        """Returns the memory types of the server.

        ```python
        print([kind.name for kind in client.memory_types().memory_types if kind.enabled])
        ```
        """
        request = memory_service_pb2.ListMemoryTypesRequest()
        response = await self._connection.call(self._connection.stubs.memories.ListMemoryTypes, request)
        return MemoryTypes(to_json(response))


class BlockingUserMemories:
    """Blocking versions of the methods of UserMemories; a base of Client."""

    find = blocking(UserMemories.find)
    explain_search = blocking(UserMemories.explain_search)
    write_memories = blocking(UserMemories.write_memories)
    put_memory = blocking(UserMemories.put_memory)
    edit_memory = blocking(UserMemories.edit_memory)
    delete_memory = blocking(UserMemories.delete_memory)
    forget = blocking(UserMemories.forget)
    versions = blocking_iter(UserMemories.versions)
    memory_types = blocking(UserMemories.memory_types)
