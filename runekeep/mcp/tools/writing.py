"""Tools that change memories. Each change is a revision, and earlier versions stay readable."""

from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from runekeep import AsyncClient, InvalidArgumentError, Replace
from runekeep.mcp.budget import cut_text
from runekeep.mcp.errors import describe
from runekeep.mcp.tools.toolbox import ADDS, REPLACES, Toolbox, Uri, Version, add_tool

_EXISTS = {"VERSION_MISMATCH": "It exists already. Read it with memory_read, then change it with memory_correct."}


class WritingTools(Toolbox):
    """Remember, correct, forget."""

    def add_to(self, server: MCPServer, *, destructive: bool) -> None:
        add_tool(server, self.memory_remember, ADDS)
        add_tool(server, self.memory_correct, REPLACES)
        if destructive:
            add_tool(server, self.memory_forget, REPLACES)

    async def memory_remember(
        self,
        memory_type: str,
        fields: Annotated[
            dict[str, str | int | float | bool],
            Field(
                description="preferences: topic, content. entities: entity_name, entity_type, content. "
                "events: event_name, event_time, content"
            ),
        ],
        context: Context,
    ) -> str:
        """Write a new memory about the user. Conversations are remembered by themselves; this is for what the user asks
        you to keep."""
        async with self._calling(context, _EXISTS) as client:
            try:
                memory = await client.put_memory(memory_type, fields)
            except InvalidArgumentError as error:
                raise ToolError(f"{describe(error)}\n{await _types(client)}") from error
        return f"Remembered as {memory.uri}, version {memory.version}."

    async def memory_correct(
        self,
        uri: Uri,
        new: str,
        context: Context,
        old: Annotated[str, Field(description="Text to replace, occurs once; empty: the whole field")] = "",
        field: str = "content",
        version: Version = 0,
    ) -> str:
        """Correct a memory that is wrong or outdated."""
        async with self._calling(context) as client:
            base = version or (await client.get_memory(uri, view="abstract")).version
            change = Replace(old, new) if old else new
            memory = await client.edit_memory(uri, {field: change}, base_version=base)
        text = f"Corrected {memory.uri}, now version {memory.version}:\n{memory.content}"
        return cut_text(text, self._budget)

    async def memory_forget(self, uri: Uri, context: Context, version: Version = 0) -> str:
        """Delete a memory, if the user asks for it."""
        async with self._calling(context) as client:
            base = version or (await client.get_memory(uri, view="abstract")).version
            memory = await client.delete_memory(uri, base_version=base)
        return f"Deleted {memory.uri}. Its earlier versions stay in the history."


async def _types(client: AsyncClient) -> str:
    types = (await client.memory_types()).memory_types
    named = (f"{one.name}({', '.join(field.name for field in one.fields)})" for one in types)
    return f"Types and their fields: {', '.join(named)}."
