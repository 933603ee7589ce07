"""Reactions to turns, `turn.log.reaction`: their form, and which are refused.

A user has one reaction to a turn, and a new one replaces it. Reactions that a machine infers from the user's words
accumulate. The rules are those of `design/turn-memory.md`. Times are microseconds since 1970 (UTC).
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from runekeep_schemas.turns.fingerprint import from_iso, iso

PREFIX: Final = "[turn.log.reaction]"
"""Prefix of the JSON in the stored form."""
USER: Final = "user"
MACHINE: Final = "machine"
ORIGINS: Final = (USER, MACHINE)
REACTIONS: Final = ("ok", "not_ok", "neutral", "none")
MIN_CONFIDENCE: Final = 0.70
"""Minimum confidence of a machine's reaction, inclusive."""
MAX_OF_MACHINES: Final = 100
"""Maximum reactions of machines per turn."""
MAX_FOUND_REACTIONS: Final = 4
"""Maximum reactions that a job may store for one turn."""
TEXT_LENGTH: Final = 1000


@dataclass(frozen=True, slots=True)
class Reaction:
    """A reaction to a turn. `reaction` is one of REACTIONS, `origin` one of ORIGINS, `confidence` from 0 to 1."""

    feedback_id: str
    turn_id: str
    reaction: str
    text: str
    origin: str
    confidence: float
    from_turn_id: str
    created_at: int

    def to_text(self) -> str:
        """Returns the stored form: PREFIX, then one JSON object."""
        body = {
            "feedback_id": self.feedback_id,
            "turn_id": self.turn_id,
            "reaction": self.reaction,
            "text": self.text,
            "origin": self.origin,
            "confidence": self.confidence,
            "from_turn_id": self.from_turn_id,
            "ts": iso(self.created_at),
        }
        return PREFIX + json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Reaction":
        """Reads the result of `to_text`. Raises ValueError if the prefix is missing."""
        if not text.startswith(PREFIX):
            raise ValueError(f"not a stored reaction: it does not begin with {PREFIX}")
        body: dict[str, Any] = json.loads(text[len(PREFIX) :])
        return cls(
            body["feedback_id"],
            body["turn_id"],
            body["reaction"],
            body["text"],
            body["origin"],
            body["confidence"],
            body["from_turn_id"],
            from_iso(body["ts"]),
        )


def artifact_name(reaction: Reaction) -> str:
    """Returns a name that is unique in the session: one for the user and a turn, one for each reaction of a machine."""
    return f"{USER}:{reaction.turn_id}" if reaction.origin == USER else reaction.feedback_id


def settled(reaction: Reaction) -> Reaction:
    """Returns the reaction as it is stored: a user's explicit reaction is certain, and belongs to the turn that it is
    about.
    """
    if reaction.origin == USER:
        return replace(reaction, confidence=1.0, from_turn_id=reaction.turn_id)
    return reaction


def refusal(reaction: Reaction) -> tuple[str, str, str] | None:
    """Returns the field, the problem, and how to fix it; None if the reaction is accepted.

    The turn of a machine's reaction may still be empty: the server finds it, see SubmitFeedbackRequest.
    """
    said = reaction.text.strip()
    if reaction.origin == MACHINE:
        # The comparison is negated so that NaN is refused, too.
        if not reaction.confidence >= MIN_CONFIDENCE:
            return "confidence", f"is below {MIN_CONFIDENCE:.2f}", "Leave out reactions that are this uncertain"
        if not said:
            return "text", "is empty", "Say in words what the user reacted to"
        return None
    if not reaction.turn_id:
        return "turn_id", "is empty", "Name the turn that the user reacts to"
    if reaction.reaction == "none" and not said:
        return "reaction", "is missing, and so is the text", "Give one of them; ClearFeedback removes a reaction"
    return None
