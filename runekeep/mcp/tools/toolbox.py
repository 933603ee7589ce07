"""What all tools share: the caller's client, the budget, and the form in which a server takes them."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations
from pydantic import Field

from runekeep import AsyncClient
from runekeep.mcp.callers import Callers
from runekeep.mcp.errors import tool_errors

Uri = Annotated[str, Field(description="viking:// URI")]
Version = Annotated[int, Field(description="0: current", ge=0)]


class Toolbox:
    """A group of tools. A tool is a method; its docstring is its description."""

    def __init__(self, callers: Callers, token_budget: int) -> None:
        self._callers = callers
        self._budget = token_budget

    @asynccontextmanager
    async def _calling(
        self, context: Context, advice: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncClient, None]:
        """Opens the caller's client; errors of its calls become tool errors."""
        with tool_errors(advice):
            async with self._callers.client(context) as client:
                yield client


READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
REPLACES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


def add_tool(server: MCPServer, tool: Callable[..., Any], annotations: ToolAnnotations) -> None:
    """Offers a method as a tool that answers with text. A result schema would cost tokens and say nothing."""
    server.add_tool(
        tool,
        # On one line: the indentation of a docstring would cost tokens.
        description=" ".join((tool.__doc__ or "").split()),
        annotations=annotations,
        structured_output=False,
    )
