"""Turns errors of calls into tool errors, which say the reason, what was wrong and what the model can do."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from mcp.server.mcpserver.exceptions import ToolError

from runekeep import RunekeepError, TlsError

_ADVICE = {
    "VERSION_MISMATCH": "It changed meanwhile. Read it with memory_read, then repeat the call.",
    "PATCH_NOT_APPLICABLE": "`old` must occur once, to the letter. Read the text with memory_read.",
    "WRITE_NOT_ALLOWED": "Memories of this type or path cannot be changed like this; tell the user.",
    "COMMIT_BACKLOG_FULL": "Too many commits wait. Go on, and commit later.",
    "NOT_FOUND": "Find URIs that exist with memory_search or memory_list.",
    "UNAVAILABLE": "The memory server is unavailable. Go on without memory, and tell the user: `runekeep doctor`.",
    "DEADLINE_EXCEEDED": "The memory server is slow. Go on without memory, or try once more.",
    "RESOURCE_EXHAUSTED": "Ask for less at once, or try again later.",
    "UNAUTHENTICATED": "The user must set RUNEKEEP_API_KEY, or over HTTP the header `Authorization: Bearer KEY`.",
    "PERMISSION_DENIED": "The API key is for another account or user; tell the user.",
    "INVALID_ARGUMENT": "Correct the argument, then repeat the call.",
}
"""What to do, by reason or else by gRPC code."""


@contextmanager
def tool_errors(advice: Mapping[str, str] | None = None) -> Generator[None, None, None]:
    """Raises errors of calls as ToolError. `advice`: what this tool recommends, by reason or gRPC code."""
    try:
        yield
    except RunekeepError as error:
        raise ToolError(describe(error, advice)) from error
    except ValueError as error:
        # The client refuses what it cannot send, such as a key with spaces.
        raise ToolError(str(error)) from error


def describe(error: RunekeepError, advice: Mapping[str, str] | None = None) -> str:
    """Returns reason, message and advice as one text."""
    # The message of a TlsError says what to do.
    if isinstance(error, TlsError):
        return str(error)
    known = {**_ADVICE, **(advice or {})}
    what = known.get(error.reason) or known.get(error.code, "")
    return f"{error}\n{what}".rstrip()
