"""The tree of a user's space: reading, listing, patterns of paths, text search."""

from collections.abc import AsyncGenerator
from typing import Any, Literal, cast

from runekeep.client import reading
from runekeep.client.arguments import Moment, ViewName, as_of
from runekeep.client.connection import Connection
from runekeep.client.errors import AbortedError
from runekeep.client.plain import plain
from runekeep.client.results import Directory, DirectoryEntry, GrepMatch, Memory
from runekeep.v1 import memory_service_pb2 as wire

OutputName = Literal["agent", "original"]


_READINGS = 3
_NODE_LIMIT = 1000
"""Of the server, where none is given."""
_MAX_NODE_LIMIT = 10_000
"""Of one call."""


class _Changed(Exception):
    """The document is another one than at the call before."""


class _Reading:
    """The calls that read one document."""

    def __init__(self, connection: Connection, uri: str, moment: Moment | None) -> None:
        self._connection, self._uri, self._as_of = connection, uri, as_of(moment)
        self._totals: tuple[int, int] | None = None

    async def lines(self, offset: int, limit: int) -> str:
        """Raises _Changed."""
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
        """Raises _Changed."""
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
        response = await self._connection.call(self._connection.stubs.memories.ReadDocument, request, 5)
        totals = (response.total_lines, response.total_characters)
        if self._totals not in (None, totals):
            raise _Changed
        self._totals = totals
        return response


class UserDocuments:
    """Documents of one user; every AsyncClient is this too. `as_of` is a revision or a time: what was there then."""

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
        """Lines of any document of the tree, from line `offset`; -1: to its end, in as many calls as that takes.

        `characters` in place of lines: the first one, from 0, and how many (-1: to the end). A document that changes
        between the calls is read anew, and AbortedError raised when it changes each time.
        """
        if characters is not None and (offset or limit >= 0):
            raise ValueError("by characters or by lines, not by both")
        for _ in range(_READINGS):
            reading = _Reading(self._connection, uri, as_of)
            try:
                if characters is not None:
                    return await reading.characters(*characters)
                return await reading.lines(offset, limit)
            except _Changed:
                continue
        raise AbortedError(f"{uri} changed each time while it was read", code="ABORTED", resource=uri)

    async def get_memory(
        self, uri: str, version: int = 0, view: ViewName = "full", *, as_of: Moment | None = None
    ) -> Memory:
        """One memory with its typed fields and the messages it came from; version 0 is the current one."""
        request = wire.GetMemoryRequest(uri=uri, version=version, view=reading.view_number(view), as_of=_as_of(as_of))
        response = await self._connection.call(self._connection.stubs.memories.GetMemory, request, 5)
        return cast(Memory, plain(response.memory))

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
        """What is in a directory; empty: the root of the user's space. See `tree`."""
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
        """What is in a directory and below, depth first, `level_limit` levels deep, at most `node_limit` entries.

        `output`: `agent` brings abstracts of at most `abs_limit` characters, `original` leaves them out.
        """
        if output not in ("agent", "original"):
            raise ValueError(f"output is agent or original, not {output!r}")
        request = wire.ListDirectoryRequest(
            uri=uri,
            depth=level_limit,
            abstract_limit=abs_limit if output == "agent" else 1,
            node_limit=node_limit,
            show_hidden=show_all_hidden,
            as_of=_as_of(as_of),
        )
        found = await self._listed(self._connection.stubs.memories.ListDirectory, request)
        if output == "original":
            for entry in found["entries"]:
                entry["abstract"] = ""
        return found

    async def glob(
        self,
        pattern: str,
        uri: str = "",
        *,
        node_limit: int = 1000,
        show_all_hidden: bool = False,
        as_of: Moment | None = None,
    ) -> Directory:
        """Entries whose path below `uri` fits a pattern such as `**/*.md`, see docs/documents.md."""
        request = wire.GlobDocumentsRequest(
            pattern=pattern, uri=uri, node_limit=node_limit, show_hidden=show_all_hidden, as_of=_as_of(as_of)
        )
        return await self._listed(self._connection.stubs.memories.GlobDocuments, request)

    async def _listed(self, method: Any, request: wire.ListDirectoryRequest | wire.GlobDocumentsRequest) -> Directory:
        """Up to `node_limit` entries, in as many calls as that takes: a long answer is cut before."""
        limit = request.node_limit or _NODE_LIMIT
        entries: list[DirectoryEntry] = []
        while True:
            request.node_limit = min(limit - len(entries), _MAX_NODE_LIMIT)
            page = plain(await self._connection.call(method, request, 5))
            entries += page["entries"]
            request.page_token = page.pop("next_page_token")
            if not request.page_token or len(entries) >= limit:
                return cast(Directory, {**page, "entries": entries})

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
        """Lines that hold the text, or fit the expression (RE2), in the order of the tree, page by page as they are
        asked for. `glob` confines it to documents whose path below `uri` fits.
        """
        request = wire.GrepDocumentsRequest(
            pattern=pattern,
            regex=regex,
            ignore_case=ignore_case,
            uri=uri,
            glob=glob,
            show_hidden=show_all_hidden,
            context_lines=context_lines,
            as_of=_as_of(as_of),
        )
        while True:
            page = await self._connection.call(self._connection.stubs.memories.GrepDocuments, request, 10)
            for match in page.matches:
                yield cast(GrepMatch, plain(match))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


_as_of = as_of
"""Under a name that no parameter has."""
