"""The reconciler's selection, `conversation.active_set.v1`, and the offer that it selects from.

Without a stored selection (None) nothing is filtered; an empty selection means that only the current turn is shown. The
rules are those of `design/turn-memory.md`. Times are microseconds since 1970 (UTC).
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from runekeep_schemas.turns.fingerprint import from_iso, iso

MAX_LOCAL_MEMORIES: Final = 5
MAX_TURNS: Final = 10
MAX_BUCKETS: Final = 5

MAX_OFFERED_TURNS: Final = 256
MAX_OFFERED_BUCKETS: Final = 64
MAX_TOKEN: Final = 65536
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_VERSION: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """One per session. `memory_version`: version of the memories that it was selected from; newer ones form the next
    delta window.
    """

    local_memories_turn_ids: tuple[str, ...] = ()
    turn_ids: tuple[str, ...] = ()
    memory_bucket_ids: tuple[str, ...] = ()
    current_turn_id: str = ""
    last_reconciled_at: int = 0
    memory_version: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.local_memories_turn_ids or self.turn_ids or self.memory_bucket_ids)

    def to_text(self) -> str:
        """Returns the stored form: one JSON object."""
        body = {
            "local_memories_turn_ids": self.local_memories_turn_ids,
            "turn_ids": self.turn_ids,
            "memory_bucket_ids": self.memory_bucket_ids,
            "current_turn_id": self.current_turn_id,
            "last_reconciled_ts": iso(self.last_reconciled_at),
            "memory_version": self.memory_version,
        }
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Selection":
        """Reads the result of `to_text`."""
        body: dict[str, Any] = json.loads(text)
        return cls(
            local_memories_turn_ids=tuple(body["local_memories_turn_ids"]),
            turn_ids=tuple(body["turn_ids"]),
            memory_bucket_ids=tuple(body["memory_bucket_ids"]),
            current_turn_id=body["current_turn_id"],
            last_reconciled_at=from_iso(body["last_reconciled_ts"]),
            memory_version=body["memory_version"],
        )


@dataclass(frozen=True, slots=True)
class Offer:
    """What one agent was shown, and the version of the session's fingerprints then.

    It travels through the caller as an unsigned token: it holds nothing that the caller could not state itself, and the
    reader of a token compares its session with the requested one.
    """

    session_id: str
    turn_ids: tuple[str, ...] = ()
    bucket_ids: tuple[str, ...] = ()
    memory_version: int = 0

    def encode(self) -> str:
        """Returns the token, at most MAX_TOKEN characters. Turns and buckets beyond the maximum offer are omitted."""
        body = [
            self.session_id,
            self.turn_ids[:MAX_OFFERED_TURNS],
            self.bucket_ids[:MAX_OFFERED_BUCKETS],
            self.memory_version,
        ]
        return base64.urlsafe_b64encode(json.dumps(body, separators=(",", ":")).encode()).decode()

    @classmethod
    def decode(cls, token: str) -> "Offer":
        """Reads the result of `encode`. Raises ValueError for anything else."""
        if len(token) > MAX_TOKEN:
            raise ValueError("the offer is too long")
        try:
            body = json.loads(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
        except (binascii.Error, ValueError, RecursionError) as error:
            raise ValueError("the offer is not one that was given out") from error
        match body:
            case [str(session_id), list(turns), list(buckets), int(version)] if (
                not isinstance(version, bool)
                and 0 <= version <= _MAX_VERSION
                and _ID.fullmatch(session_id)
                and _are_ids(turns, MAX_OFFERED_TURNS)
                and _are_ids(buckets, MAX_OFFERED_BUCKETS)
            ):
                return cls(session_id, tuple(turns), tuple(buckets), version)
        raise ValueError("the offer is not one that was given out")


def _are_ids(values: list[Any], most: int) -> bool:
    return len(values) <= most and all(isinstance(one, str) and _ID.fullmatch(one) for one in values)


def choose(offer: Offer, wanted: Selection, now: int) -> tuple[Selection, tuple[str, ...]]:
    """Returns the accepted part of a requested selection, and the dropped ids as given.

    Offered ids are accepted in the requested order, each once; a prefix of only one offered id stands for it. The first
    ids of each kind are accepted, up to the limits in the constants. Ids that are not offered, ambiguous, or beyond a
    limit are dropped.
    """
    local, no_memories = _resolved(wanted.local_memories_turn_ids, offer.turn_ids, MAX_LOCAL_MEMORIES)
    turns, no_turns = _resolved(wanted.turn_ids, offer.turn_ids, MAX_TURNS)
    buckets, no_buckets = _resolved(wanted.memory_bucket_ids, offer.bucket_ids, MAX_BUCKETS)
    kept = Selection(local, turns, buckets, wanted.current_turn_id, now, offer.memory_version)
    return kept, tuple(dict.fromkeys((*no_memories, *no_turns, *no_buckets)))


def _resolved(wanted: Sequence[str], offered: Sequence[str], most: int) -> tuple[tuple[str, ...], list[str]]:
    kept: list[str] = []
    dropped: list[str] = []
    for one in wanted:
        found = _named(one, offered)
        if found is None:
            dropped.append(one)
        elif found in kept:
            continue
        elif len(kept) < most:
            kept.append(found)
        else:
            dropped.append(one)
    return tuple(kept), dropped


def _named(prefix: str, offered: Sequence[str]) -> str | None:
    """Returns the offered id that `prefix` names, or None. An exact match wins: `turn-1` is not ambiguous beside
    `turn-10`.
    """
    if prefix in offered:
        return prefix
    found = {one for one in offered if one.startswith(prefix)} if prefix else set()
    return found.pop() if len(found) == 1 else None
