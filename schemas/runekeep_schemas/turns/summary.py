"""Summaries of turns, which later turns read instead of the messages."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

TEXTS: Final = ("user_inquiry", "user_message_description", "assistant_answer", "delivered_to_user", "notes")
LISTS: Final = ("done", "not_done", "assumptions", "risks")
TEXT_LENGTH: Final = 500
NOTES_LENGTH: Final = 1000
MAX_ITEMS: Final = 16
ITEM_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a turn. Every field may be empty."""

    user_inquiry: str = ""
    user_message_description: str = ""
    assistant_answer: str = ""
    delivered_to_user: str = ""
    done: tuple[str, ...] = ()
    not_done: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    notes: str = ""

    def to_text(self) -> str:
        """Returns the stored form: one JSON object of the non-empty fields; empty if there are none."""
        body = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")) if body else ""

    @classmethod
    def from_text(cls, text: str) -> "Summary":
        """Reads the result of `to_text`."""
        body: dict[str, Any] = json.loads(text) if text else {}
        return cls(**(body | {name: tuple(body[name]) for name in LISTS if name in body}))

    @property
    def is_empty(self) -> bool:
        return self == Summary()


def fill(there: Summary, extracted: Summary) -> Summary:
    """Fills the gaps of the existing summary with an extractor's result. Existing values stay."""
    names = (field.name for field in fields(Summary))
    return Summary(**{name: getattr(there, name) or getattr(extracted, name) for name in names})
