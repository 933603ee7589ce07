"""The rules by which a session commits automatically, and when they apply."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

SECOND: Final = 1_000_000
MAX_TOKENS: Final = 10_000_000
MAX_MESSAGES: Final = 100_000
MAX_IDLE: Final = 365 * 86_400 * SECOND
MAX_KEPT: Final = 10_000
"""Bounds of the contract (session_service.proto, AutoCommit)."""


class AutoCommitError(ValueError):
    """An invalid rule. `field`: its name; `reason`: what is wrong; `todo`: how to fix it."""

    def __init__(self, field: str, reason: str, todo: str = "Leave it out when it is to play no part") -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason
        self.todo = todo


@dataclass(frozen=True, slots=True)
class AutoCommit:
    """Rules for automatic commits; 0 switches a rule off. `idle` in microseconds. Raises AutoCommitError for invalid
    rules.
    """

    pending_tokens: int = 0
    message_count: int = 0
    idle: int = 0
    keep_recent_count: int = 0

    def __post_init__(self) -> None:
        _check_range("pending_tokens", self.pending_tokens, MAX_TOKENS)
        _check_range("message_count", self.message_count, MAX_MESSAGES)
        _check_range("idle", self.idle, MAX_IDLE)
        _check_range("keep_recent_count", self.keep_recent_count, MAX_KEPT)
        if 0 < self.idle < SECOND:
            raise AutoCommitError("idle", "is less than a second")
        if 0 < self.message_count <= self.keep_recent_count:
            # Otherwise every message would be a commit of one message.
            raise AutoCommitError(
                "keep_recent_count",
                f"is not below message_count, which is {self.message_count}",
                "Let fewer messages stay live than make a commit",
            )

    @classmethod
    def from_json(cls, text: str) -> "AutoCommit":
        """Reads the result of `to_json`. Raises AutoCommitError for anything else."""
        if not text:
            # The case of most sessions, on every message.
            return NEVER
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            raise AutoCommitError("auto_commit", "is no JSON") from error
        if not isinstance(value, dict) or not value.keys() <= set(cls.__slots__):
            raise AutoCommitError("auto_commit", f"is no object of {', '.join(cls.__slots__)}")
        return cls(**value)

    def to_json(self) -> str:
        """Returns the rules as JSON without those that are 0; empty if all are."""
        said = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(said, separators=(",", ":")) if said else ""

    def due(self, live_tokens: int, live_count: int) -> bool:
        """Returns whether live messages with this many tokens must be committed now, whether the session is idle or
        not.
        """
        if live_count <= self.keep_recent_count:
            return False
        return 0 < self.pending_tokens <= live_tokens or 0 < self.message_count <= live_count

    def idle_at(self, added_at: int, live_count: int) -> int:
        """Returns when a session with `live_count` live messages, the newest added at `added_at`, commits as idle; 0
        means never. `keep_recent_count` does not apply: the commit of an idle session takes every live message.
        """
        return added_at + self.idle if self.idle and live_count else 0


def _check_range(field: str, value: object, most: int) -> None:
    # A bool is an int in Python, but not in JSON.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise AutoCommitError(field, f"is no whole number from 0 to {most}")


NEVER: Final = AutoCommit()
"""A session that commits only on request."""
