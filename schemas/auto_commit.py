"""When a session commits by itself: the rules, and when they are met."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

SECOND: Final = 1_000_000
MOST_TOKENS: Final = 10_000_000
MOST_MESSAGES: Final = 100_000
MOST_IDLE: Final = 365 * 86_400 * SECOND
MOST_KEPT: Final = 10_000
"""Bounds of the contract (session_service.proto, AutoCommit)."""


class AutoCommitError(ValueError):
    """A rule that cannot be followed. `field`: its name; `reason`: what is wrong; `todo`: what to do about it."""

    def __init__(self, field: str, reason: str, todo: str = "Leave it out when it is to play no part") -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason
        self.todo = todo


@dataclass(frozen=True, slots=True)
class AutoCommit:
    """What is 0 plays no part. `idle` in microseconds. Raises AutoCommitError for rules that cannot be followed."""

    pending_tokens: int = 0
    message_count: int = 0
    idle: int = 0
    keep_recent_count: int = 0

    def __post_init__(self) -> None:
        _check_range("pending_tokens", self.pending_tokens, MOST_TOKENS)
        _check_range("message_count", self.message_count, MOST_MESSAGES)
        _check_range("idle", self.idle, MOST_IDLE)
        _check_range("keep_recent_count", self.keep_recent_count, MOST_KEPT)
        if 0 < self.idle < SECOND:
            raise AutoCommitError("idle", "is less than a second")
        if 0 < self.message_count <= self.keep_recent_count:
            # Every message would be a commit of one message.
            raise AutoCommitError(
                "keep_recent_count",
                f"is not below message_count, which is {self.message_count}",
                "Let fewer messages stay live than make a commit",
            )

    @classmethod
    def from_json(cls, text: str) -> "AutoCommit":
        """Reads what `to_json` gave. Raises AutoCommitError for anything else."""
        if not text:
            # Of most sessions, with every message.
            return NEVER
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            raise AutoCommitError("auto_commit", "is no JSON") from error
        if not isinstance(value, dict) or not value.keys() <= set(cls.__slots__):
            raise AutoCommitError("auto_commit", f"is no object of {', '.join(cls.__slots__)}")
        return cls(**value)

    def to_json(self) -> str:
        """What is 0 is left out; empty when all of it is."""
        said = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(said, separators=(",", ":")) if said else ""

    def due(self, live_tokens: int, live_count: int) -> bool:
        """Whether live messages of so many tokens are to be committed now, idle or not."""
        if live_count <= self.keep_recent_count:
            return False
        return 0 < self.pending_tokens <= live_tokens or 0 < self.message_count <= live_count

    def idle_at(self, added_at: int, live_count: int) -> int:
        """Returns when a session with so many live messages, the newest added at `added_at`, commits as idle; 0: never.
        `keep_recent_count` plays no part: the commit of an idle session takes every live message."""
        return added_at + self.idle if self.idle and live_count else 0


def _check_range(field: str, value: object, most: int) -> None:
    # A bool is an int in Python, and in JSON it is not.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise AutoCommitError(field, f"is no whole number from 0 to {most}")


NEVER: Final = AutoCommit()
"""A session that commits when it is told to and at no other time."""
