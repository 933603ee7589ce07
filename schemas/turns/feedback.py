"""Reactions to turns, `turn.log.reaction`: their form, and which are refused.

A user's reaction to a turn is one, and a new one takes its place; what a machine read out of the user's words adds up.
Rules are those of `design/turn-memory.md`. Times are microseconds since 1970 (UTC).
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from schemas.turns.fingerprint import from_iso, iso

PREFIX: Final = "[turn.log.reaction]"
"""Stands before the JSON of the stored form."""
USER: Final = "user"
MACHINE: Final = "machine"
ORIGINS: Final = (USER, MACHINE)
REACTIONS: Final = ("ok", "not_ok", "neutral", "none")
LEAST_CONFIDENCE: Final = 0.70
"""Of a machine; at this very value it is accepted."""
MOST_OF_MACHINES: Final = 100
"""Of one turn."""
MAX_FOUND_REACTIONS: Final = 4
"""Most reactions that a job may store for one turn."""
TEXT_LENGTH: Final = 1000


@dataclass(frozen=True, slots=True)
class Reaction:
    """`reaction` is one of REACTIONS, `origin` one of ORIGINS, `confidence` from 0 to 1."""

    feedback_id: str
    turn_id: str
    reaction: str
    text: str
    origin: str
    confidence: float
    from_turn_id: str
    created_at: int

    def to_text(self) -> str:
        """The stored form: PREFIX, then one JSON object."""
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
        """What `to_text` gave. ValueError when the prefix is missing."""
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
    """Unique in its session: one for the user and a turn, one for each reaction of a machine."""
    return f"{USER}:{reaction.turn_id}" if reaction.origin == USER else reaction.feedback_id


def settled(reaction: Reaction) -> Reaction:
    """As it is stored: what a user says on purpose is certain, and said of the turn that it is about."""
    if reaction.origin == USER:
        return replace(reaction, confidence=1.0, from_turn_id=reaction.turn_id)
    return reaction


def refusal(reaction: Reaction) -> tuple[str, str, str] | None:
    """The field, what is wrong with it, and what to do; None when the reaction is accepted.

    The turn of a machine's reaction may still be empty: it is found, see SubmitFeedbackRequest.
    """
    said = reaction.text.strip()
    if reaction.origin == MACHINE:
        # Written this way round because a number that is none is refused too.
        if not reaction.confidence >= LEAST_CONFIDENCE:
            return "confidence", f"is below {LEAST_CONFIDENCE:.2f}", "Leave out reactions that are this uncertain"
        if not said:
            return "text", "is empty", "Say in words what the user reacted to"
        return None
    if not reaction.turn_id:
        return "turn_id", "is empty", "Name the turn that the user reacts to"
    if reaction.reaction == "none" and not said:
        return "reaction", "is missing, and so is the text", "Give one of them; ClearFeedback removes a reaction"
    return None
