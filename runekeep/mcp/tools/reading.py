"""Tools that read memories."""

from typing import Annotated, Literal

from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

from runekeep.client.memories.outcomes import describe_degraded
from runekeep.client.memories.results import DirectoryEntry, SearchResult
from runekeep.injection.block import wrap_memory
from runekeep.mcp.budget import BLOCK_TOKENS, BYTES_PER_TOKEN, count_tokens, cut_text, fit_lines
from runekeep.mcp.tools.toolbox import READS, Toolbox, Uri, add_tool

# What a recall leaves of the budget goes to the URIs of what it shows.
_TEXT_SHARE = 0.8
_NOTHING = "Nothing relevant is remembered."


class ReadingTools(Toolbox):
    """Recall, search, read, list."""

    def add_to(self, server: MCPServer) -> None:
        for tool in (self.memory_recall, self.memory_search, self.memory_read, self.memory_list):
            add_tool(server, tool, READS)

    async def memory_recall(
        self,
        query: str,
        context: Context,
        session: Annotated[str, Field(description="Leaves out what it got before")] = "",
    ) -> str:
        """Recall what is known about a question, as text. Call this first."""
        async with self._calling(context) as client:
            budget = max(int((self._budget - BLOCK_TOKENS) * _TEXT_SHARE), 1)
            found = await client.recall(query, session, token_budget=budget)
        if not found.text:
            return _NOTHING
        text = wrap_memory(found.text)
        marked = [f"[{entry.mark}] {entry.uri}" for entry in found.entries if entry.mark]
        uris = fit_lines(marked, self._budget - count_tokens(text), "")
        return f"{text}\n\n{uris}".rstrip()

    async def memory_search(
        self,
        query: str,
        context: Context,
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
        kind: Annotated[Literal["", "memory", "passage"], Field(description="passage: what was said")] = "",
    ) -> str:
        """Search memories and past conversation. Returns URIs with one line each."""
        async with self._calling(context) as client:
            found = await client.find(query, limit=limit, kinds=[kind] if kind else ())
        lines = [_result_line(result) for result in found.results]
        missing = [f"({describe_degraded(part)})" for part in found.degraded]
        return fit_lines([*missing, *lines], self._budget, "({} more results have no room.)") or _NOTHING

    async def memory_read(
        self, uri: Uri, context: Context, offset: Annotated[int, Field(description="Character", ge=0)] = 0
    ) -> str:
        """Read a memory or document."""
        async with self._calling(context) as client:
            # One character more than can have room, to know whether the text goes on.
            text = await client.read(uri, characters=(offset, self._budget * BYTES_PER_TOKEN + 1))
        if count_tokens(text) <= self._budget:
            return text
        note = f"\n(Cut. Go on with offset {offset + len(text)}.)"
        shown = cut_text(text, self._budget - count_tokens(note))
        return f"{shown}\n(Cut. Go on with offset {offset + len(shown)}.)"

    async def memory_list(
        self,
        context: Context,
        uri: Uri = "viking://user/memories",
        depth: Annotated[int, Field(ge=1, le=10)] = 2,
        pattern: Annotated[str, Field(description="Glob, such as **/*.md")] = "",
    ) -> str:
        """List a directory of memories, or what matches a pattern below it."""
        async with self._calling(context) as client:
            found = await (client.glob(pattern, uri) if pattern else client.tree(uri, level_limit=depth, abs_limit=100))
        lines = [_entry_line(entry, indented=not pattern) for entry in found.entries]
        more = "({} more. List a directory below, or use a pattern.)"
        return fit_lines([found.uri, *lines], self._budget, more)


def _result_line(result: SearchResult) -> str:
    relevance = "" if result.relevance is None else f" ({result.relevance:.2f})"
    if result.kind == "passage":
        day = f"{result.create_time:%Y-%m-%d}" if result.create_time else ""
        return f"- {result.session} message {result.message_id}{relevance} {day}: {_one_line(result.text)}"
    return f"- {result.uri}{relevance}: {_one_line(result.abstract)}"


def _entry_line(entry: DirectoryEntry, *, indented: bool) -> str:
    name = entry.name + ("/" if entry.directory else "")
    place = "  " * entry.depth + name if indented else entry.uri
    return f"{place}: {_one_line(entry.abstract)}" if entry.abstract and not entry.directory else place


def _one_line(text: str) -> str:
    return " ".join(text.split())
