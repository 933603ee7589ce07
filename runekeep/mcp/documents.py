"""Memories as resources, and the prompt that loads what matters now."""

from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.types import INTERNAL_ERROR

from runekeep import AsyncClient, NotFoundError
from runekeep.injection.block import wrap_memory
from runekeep.mcp.budget import BLOCK_TOKENS, BYTES_PER_TOKEN, cut_text, fit_lines
from runekeep.mcp.callers import Callers
from runekeep.mcp.errors import tool_errors


def add_documents(server: MCPServer, callers: Callers, token_budget: int) -> None:
    """Offers memories as resources, and a prompt with the profile, preferences and open plans."""

    @server.resource(
        "viking://{+path}", name="memory", description="A memory, document or directory", mime_type="text/markdown"
    )
    async def document(path: str, context: Context) -> str:
        try:
            with tool_errors():
                async with callers.client(context) as client:
                    return await _read(client, f"viking://{path}", token_budget)
        except ToolError as error:
            kind = ResourceNotFoundError if isinstance(error.__cause__, NotFoundError) else ResourceError
            raise kind(str(error)) from error

    @server.prompt(name="memory_now", description="What matters now: profile, preferences, open plans")
    async def memory_now(context: Context) -> str:
        try:
            with tool_errors():
                async with callers.client(context) as client:
                    budget = max(token_budget - BLOCK_TOKENS, 1)
                    found = await client.recall(parts=["stable"], stable_budget=budget)
        except ToolError as error:
            # Of any other error the SDK would log the trace, and tell the client nothing.
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error
        if not found.stable_text:
            return "Nothing is remembered about the user yet."
        return wrap_memory(found.stable_text)


async def _read(client: AsyncClient, uri: str, token_budget: int) -> str:
    """Returns a document, or the URIs below a directory."""
    # Documents have an extension, directories of memories have none.
    if "." in uri.rpartition("/")[2]:
        return cut_text(await client.read(uri, characters=(0, token_budget * BYTES_PER_TOKEN)), token_budget)
    found = await client.tree(uri, level_limit=2)
    return fit_lines((entry.uri for entry in found.entries), token_budget, "({} more; read a directory below.)")
