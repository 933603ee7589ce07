"""The tree of a user's space: reading, listing, globs, text search."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection
from runekeep.client.connection.errors import AbortedError
from runekeep.client.memories.requests import view_number
from runekeep.client.memories.results import Directory, GrepMatch, Memory
from runekeep.client.wire.arguments import Moment, ViewName, as_of_to_wire
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import memory_service_pb2 as wire

OutputName = Literal["agent", "original"]


_MAX_READ_ATTEMPTS = 3
_NODE_LIMIT = 1000
"""The server's default."""
_MAX_NODE_LIMIT = 10_000
"""Maximum of one call."""


class _DocumentChanged(Exception):
    """The document has changed since the previous call."""


class _DocumentReader:
    """Reads one document in several calls."""

    def __init__(self, connection: Connection, uri: str, moment: Moment | None) -> None:
        self._connection, self._uri, self._as_of = connection, uri, as_of_to_wire(moment)
        self._totals: tuple[int, int] | None = None

    async def lines(self, offset: int, limit: int) -> str:
        """Raises _DocumentChanged."""
        pieces: list[str] = []
        at = offset
        last = None if limit < 0 else offset + limit
        while last is None or at < last:
            response = await self._call(offset=at, limit=-1 if last is None else last - at)
            if response.next_character:
                rest = await self.characters(response.next_character, -1)
                lines = (response.text + rest).split("\n")
                return "\n".join([*pieces, *lines[: None if last is None else last - at]])
            pieces.append(response.text)
            if response.next_offset <= at:
                break
            at = response.next_offset
        return "\n".join(pieces)

    async def characters(self, start: int, length: int) -> str:
        """Raises _DocumentChanged."""
        pieces: list[str] = []
        last = None if length < 0 else start + length
        while last is None or start < last:
            wanted = wire.CharacterRange(start=start, length=0 if last is None else last - start)
            response = await self._call(characters=wanted)
            pieces.append(response.text)
            if response.next_offset <= start:
                break
            start = response.next_offset
        return "".join(pieces)

    async def _call(self, **part: Any) -> wire.ReadDocumentResponse:
        request = wire.ReadDocumentRequest(uri=self._uri, as_of=self._as_of, **part)
        response = await self._connection.call(self._connection.stubs.memories.ReadDocument, request)
        totals = (response.total_lines, response.total_characters)
        if self._totals not in (None, totals):
            raise _DocumentChanged
        self._totals = totals
        return response


class UserDocuments:
    """Documents of one user; every AsyncClient is this too. `as_of`, a revision or a time, selects a past state."""

    _connection: Connection

    async def read(
        self,
        uri: str,
        offset: int = 0,
        limit: int = -1,
        *,
        characters: tuple[int, int] | None = None,
        as_of: Moment | None = None,
    ) -> str:
        """Returns `limit` lines of a document from line `offset`; -1: to its end. Large documents take several calls.

        `characters` selects characters in place of lines: the first, from 0, and their number (-1: to the end). If the
        document changes between the calls, it is read again. Raises AbortedError if it changes each time.

        ```python
        print(client.read("viking://user/robin/memories/profile.md", limit=20))
        ```
        """
        if characters is not None and (offset or limit >= 0):
            raise ValueError("give characters or lines, not both")
        for _ in range(_MAX_READ_ATTEMPTS):
            reading = _DocumentReader(self._connection, uri, as_of)
            try:
                if characters is not None:
                    return await reading.characters(*characters)
                return await reading.lines(offset, limit)
            except _DocumentChanged:
                continue
        raise AbortedError(f"{uri} changed during each attempt to read it", code="ABORTED", resource=uri)

    async def get_memory(
        self, uri: str, version: int = 0, view: ViewName = "full", *, as_of: Moment | None = None
    ) -> Memory:
        """Returns a memory with its typed fields and the messages it came from. Version 0 is the current one.

        ```python
        memory = client.get_memory("viking://user/robin/memories/profile.md")
        print(memory.fields, [source.message_id for source in memory.sources])
        ```
        """
        request = wire.GetMemoryRequest(uri=uri, version=version, view=view_number(view), as_of=as_of_to_wire(as_of))
        response = await self._connection.call(self._connection.stubs.memories.GetMemory, request)
        return Memory(to_json(response.memory))

    async def ls(
        self,
        uri: str = "",
        output: OutputName = "agent",
        abs_limit: int = 256,
        show_all_hidden: bool = False,
        node_limit: int = 1000,
        *,
        as_of: Moment | None = None,
    ) -> Directory:
        """Lists a directory; an empty URI is the root of the user's space. See `tree`.

        ```python
        print([entry.name for entry in client.ls("viking://user/robin/memories").entries])
        ```
        """
        return await self.tree(uri, output, abs_limit, show_all_hidden, node_limit, level_limit=1, as_of=as_of)

    async def tree(
        self,
        uri: str = "viking://",
        output: OutputName = "agent",
        abs_limit: int = 256,
        show_all_hidden: bool = False,
        node_limit: int = 1000,
        level_limit: int = 3,
        *,
        as_of: Moment | None = None,
    ) -> Directory:
        """Lists a directory and what is below it, depth first: `level_limit` levels, at most `node_limit` entries.

        `output`: `agent` includes abstracts of at most `abs_limit` characters, `original` leaves them out.

        ```python
        for entry in client.tree(level_limit=2).entries:
            print("  " * entry.depth + entry.name)
        ```
        """
        if output not in ("agent", "original"):
            raise ValueError(f"output is agent or original, not {output!r}")
        request = wire.ListDirectoryRequest(
            uri=uri,
            depth=level_limit,
            abstract_limit=abs_limit if output == "agent" else 1,
            node_limit=node_limit,
            show_hidden=show_all_hidden,
            as_of=as_of_to_wire(as_of),
        )
        found = await self._list_pages(self._connection.stubs.memories.ListDirectory, request)
        if output == "original":
            for entry in found["entries"]:
                entry["abstract"] = ""
        return Directory(found)

    async def glob(
        self,
        pattern: str,
        uri: str = "",
        *,
        node_limit: int = 1000,
        show_all_hidden: bool = False,
        as_of: Moment | None = None,
    ) -> Directory:
        """Lists entries whose path below `uri` matches a pattern such as `**/*.md`; see docs/guides/documents.md.

        ```python
        print([entry.uri for entry in client.glob("**/*.md").entries])
        ```
        """
        request = wire.GlobDocumentsRequest(
            pattern=pattern, uri=uri, node_limit=node_limit, show_hidden=show_all_hidden, as_of=as_of_to_wire(as_of)
        )
        return Directory(await self._list_pages(self._connection.stubs.memories.GlobDocuments, request))

    async def _list_pages(
        self, method: Any, request: wire.ListDirectoryRequest | wire.GlobDocumentsRequest
    ) -> dict[str, Any]:
        """Returns up to `node_limit` entries as a Directory has them. It takes several calls, because a long response
        is cut."""
        limit = request.node_limit or _NODE_LIMIT
        entries: list[dict[str, Any]] = []
        while True:
            request.node_limit = min(limit - len(entries), _MAX_NODE_LIMIT)
            page = to_json(await self._connection.call(method, request))
            entries += page["entries"]
            request.page_token = page.pop("next_page_token")
            if not request.page_token or len(entries) >= limit:
                return {**page, "entries": entries}

    async def grep(
        self,
        pattern: str,
        uri: str = "",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        glob: str = "",
        context_lines: int = 0,
        show_all_hidden: bool = False,
        as_of: Moment | None = None,
    ) -> AsyncGenerator[GrepMatch, None]:
        """Yields lines that contain a text, or match a regular expression (RE2), in the order of the tree.

        `glob` limits it to documents whose path below `uri` matches. Pages are loaded when they are needed.

        ```python
        for match in client.grep("Lisbon", ignore_case=True):
            print(match.uri, match.line, match.text)
        ```
        """
        request = wire.GrepDocumentsRequest(
            pattern=pattern,
            regex=regex,
            ignore_case=ignore_case,
            uri=uri,
            glob=glob,
            show_hidden=show_all_hidden,
            context_lines=context_lines,
            as_of=as_of_to_wire(as_of),
        )
        async for page in self._connection.pages(self._connection.stubs.memories.GrepDocuments, request):
            for match in page.matches:
                yield GrepMatch(to_json(match))


class BlockingUserDocuments:
    """Blocking versions of the methods of UserDocuments; a base of Client."""

    read = blocking(UserDocuments.read)
    get_memory = blocking(UserDocuments.get_memory)
    ls = blocking(UserDocuments.ls)
    tree = blocking(UserDocuments.tree)
    glob = blocking(UserDocuments.glob)
    grep = blocking_iter(UserDocuments.grep)
