"""Texts on their way between an agent and memory: their limits, their cleaning, and errors that quote none of them."""

from runekeep import RunekeepError

MAX_QUERY_CHARS = 2_000
MAX_TEXT_CHARS = 60_000
"""Maximum characters of one text of a captured message."""


def clean_text(text: str) -> str:
    """Returns a text that can be sent: JSON may hold half a surrogate pair, which UTF-8 cannot."""
    return text.encode(errors="replace").decode()


def name_error(error: BaseException) -> str:
    """Names an error without what somebody said: messages of the server may quote it."""
    return f"{error.code} {error.reason}".strip() if isinstance(error, RunekeepError) else type(error).__name__
