"""Tools that say where a memory comes from and how it changed."""

from collections import defaultdict
from datetime import datetime
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

from runekeep import AsyncClient, Message, NotFoundError, TextPart
from runekeep.client.history import ChangedMemory, Revision
from runekeep.client.memories.results import Memory, MessageSource
from runekeep.mcp.budget import fit_lines
from runekeep.mcp.tools.toolbox import READS, Toolbox, Uri, Version, add_tool


class HistoryTools(Toolbox):
    """History, why, rollback preview."""

    def add_to(self, server: MCPServer) -> None:
        for tool in (self.memory_history, self.memory_why, self.rollback_preview):
            add_tool(server, tool, READS)

    async def memory_history(
        self, context: Context, uri: Uri = "", limit: Annotated[int, Field(ge=1, le=100)] = 10
    ) -> str:
        """List the versions of a memory, or without URI the latest revisions of all, newest first."""
        lines: list[str] = []
        async with self._calling(context) as client:
            if uri:
                async for memory in client.versions(uri):
                    lines.append(_version_line(memory))
                    if len(lines) >= limit:
                        break
            else:
                async for revision in client.revisions():
                    lines.append(_revision_line(revision))
                    if len(lines) >= limit:
                        break
        return fit_lines(lines, self._budget, "({} older ones have no room.)") or "There is no revision yet."

    async def memory_why(self, uri: Uri, context: Context, version: Version = 0) -> str:
        """Show the messages a memory came from."""
        async with self._calling(context) as client:
            memory = await client.get_memory(uri, version)
            if not memory.sources:
                return "It names no messages: it was written by hand, or its conversation was erased."
            lines = await _source_lines(client, memory.sources)
        return fit_lines(lines, self._budget, "({} more messages have no room.)")

    async def rollback_preview(self, revision: int, context: Context) -> str:
        """Show what undoing a revision would change. Changes nothing; the user can do it with `runekeep history
        rollback`."""
        async with self._calling(context) as client:
            preview = await client.rollback(revision, preview=True)
        conflicts = [
            f"Conflict: {one.uri} was changed again by revisions {', '.join(map(str, one.revisions))}"
            for one in preview.conflicts
        ]
        changes = [_change_line(change) for change in preview.changes]
        return (
            fit_lines([*conflicts, *changes], self._budget, "({} more changes have no room.)") or "It changes nothing."
        )


def _version_line(memory: Memory) -> str:
    state = "deleted" if memory.deleted else " ".join(memory.content.split())
    return f"- version {memory.version}, revision {memory.revision}, {_day(memory.update_time)}: {state}"


def _revision_line(revision: Revision) -> str:
    undone = f", taken back by {revision.rolled_back_by}" if revision.rolled_back_by else ""
    counts = f"{revision.adds} added, {revision.updates} updated, {revision.deletes} deleted"
    return f"- revision {revision.number}, {_day(revision.create_time)}, {revision.origin}{undone}: {counts}"


def _change_line(change: ChangedMemory) -> str:
    if not change.after:
        return f"Delete {change.uri}"
    verb = "Change" if change.before else "Restore"
    return f"{verb} {change.uri} to: {' '.join(change.after.split())}"


def _day(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d}" if time else ""


async def _source_lines(client: AsyncClient, sources: list[MessageSource]) -> list[str]:
    """Returns one line for each source message, in order."""
    wanted: dict[str, dict[int, str]] = defaultdict(dict)
    for source in sources:
        wanted[source.session][source.sequence] = source.message_id
    lines: list[str] = []
    for session, sequences in wanted.items():
        try:
            handle = await client.get_session(session)
            last = max(sequences)
            async for message in handle.messages("all", start_sequence=min(sequences)):
                if message.sequence in sequences:
                    lines.append(_message_line(session, message))
                if message.sequence >= last:
                    break
        except NotFoundError:
            lines.append(f"- {session}: the session was deleted")
    return lines


def _message_line(session: str, message: Message) -> str:
    text = " ".join(part.text for part in message.parts if isinstance(part, TextPart))
    day = message.created_at.date().isoformat() if message.created_at else ""
    who = message.speaker or message.role
    return f"- {session} message {message.sequence}, {day}, {who}: {' '.join(text.split())}"
