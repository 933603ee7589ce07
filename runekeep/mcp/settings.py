"""What an MCP server is started with."""

from dataclasses import dataclass

from runekeep.web.listening import Place


@dataclass(frozen=True, slots=True)
class McpSettings(Place):
    """`server` is an address as the client takes it; None is the client's default. `account` and `user` hold for
    requests that name none; None is the client's default."""

    server: str | None = None
    account: str | None = None
    user: str | None = None
    token_budget: int = 2000
    """Maximum tokens of one result."""
    destructive: bool = False
    """Whether tools that delete are offered."""
