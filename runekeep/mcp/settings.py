"""What an MCP server is started with."""

from dataclasses import dataclass

from runekeep.web.callers import CallerPlace


@dataclass(frozen=True, slots=True)
class McpSettings(CallerPlace):
    """Over stdio the address is not used, and the process calls with its own credentials."""

    token_budget: int = 2000
    """Maximum tokens of one result."""
    destructive: bool = False
    """Whether tools that delete are offered."""
