"""Conversations to measure with: our own, made of sentences with numbers in them, so that no two messages are alike."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct

from runekeep.v1 import common_pb2

BEGIN = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)

_SHORT = (
    ("user", "Morning! From now on please answer me in German, and keep it under five lines."),
    ("assistant", "Gern. Ich antworte ab jetzt auf Deutsch und in höchstens fünf Zeilen."),
    ("user", "Great. I start at the observatory in Garching on 16 March, as a data engineer."),
    ("assistant", "Glückwunsch! Brauchen Sie noch etwas für den ersten Tag?"),
    ("user", "A quiet keyboard. My colleague Marta cannot stand the clicking of mine."),
    ("assistant", "Eine Tastatur mit gedämpften Schaltern wäre das Richtige."),
    ("user", "Good idea. And remind me that the badge office closes at 15:00 on Fridays."),
    ("assistant", "Notiert: Das Ausweisbüro schließt freitags um 15 Uhr."),
)
_PLACES = ("the east dome", "the cryostat lab", "the control room", "the mirror hall", "the archive cluster")
_PEOPLE = ("Marta", "Jonas", "Ayşe", "Priya", "Lucien", "Tomasz", "Ngozi")
_THINGS = ("guide camera", "spectrograph", "dew-point sensor", "tape robot", "focus motor", "dome shutter")
_FAULTS = (
    "drifts by {n} arcseconds after midnight",
    "reports {n} checksum errors in an hour",
    "stops at step {n} of its calibration",
    "draws {n} milliamperes more than it did last week",
)
_CURES = (
    "We swapped its cable and the figure fell to {n}.",
    "Restarting the service with a queue of {n} entries helped.",
    "A firmware of the {n}th of February is the one that works.",
    "It needs {n} minutes of warming up before anybody trusts it.",
)
_REMARKS = (
    "I would rather be told at once than read it in the nightly report, even when it is three in the morning.",
    "The visitors come on the {n}th, so please keep the corridor free and the slides in English.",
    "My own notes of that night are on paper, page {n}, and I keep meaning to type them up for everybody.",
    "We agreed that nobody changes two settings in one night, for then nobody knows which one it was.",
)


def short() -> list[common_pb2.Message]:
    """Eight messages of two people."""
    return [_message(number, role, [_text(text)]) for number, (role, text) in enumerate(_SHORT, 1)]


def long(count: int = 800) -> list[common_pb2.Message]:
    """As many messages as asked for, of some 300 characters each, over weeks."""
    texts = _talk()
    return [
        _message(number, "user" if number % 2 else "assistant", [_text(next(texts))]) for number in range(1, count + 1)
    ]


def tool_heavy(rounds: int = 30) -> list[common_pb2.Message]:
    """An agent works on one fault with three tools; outputs of some 4,000 to 16,000 characters, and a few failures."""
    messages = [
        _message(
            1, "user", [_text("The nightly reduction failed again. Find out why, fix it and tell me what you did.")]
        )
    ]
    tools = itertools.cycle(("read_log", "run_query", "execute_code"))
    for turn in range(1, rounds + 1):
        name = next(tools)
        parts = [_text(f"Step {turn}: I look at part {turn} of the night with {name}."), _call(turn, name)]
        messages.append(_message(len(messages) + 1, "assistant", parts))
    closing = "Frame 17 was written twice; I removed the second copy, and the reduction went through in 41 minutes."
    return [*messages, _message(len(messages) + 1, "assistant", [_text(closing)])]


def locomo(path: Path) -> list[common_pb2.Message]:
    """The longest session of the first conversation of a LoCoMo file."""
    conversation: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))[0]["conversation"]
    sessions = [turns for name, turns in conversation.items() if isinstance(turns, list)]
    longest = max(sessions, key=lambda turns: sum(len(turn["text"]) for turn in turns))
    return [
        _message(number, "user", [_text(turn["text"])], speaker=turn["speaker"])
        for number, turn in enumerate(longest, 1)
    ]


def _talk() -> Iterator[str]:
    for n, person, place, thing, fault, cure, remark in zip(
        itertools.count(2),
        itertools.cycle(_PEOPLE),
        itertools.cycle(_PLACES),
        itertools.cycle(_THINGS),
        itertools.cycle(_FAULTS),
        itertools.cycle(_CURES),
        itertools.cycle(_REMARKS),
    ):
        yield (
            f"{person} says that the {thing} in {place} {fault.format(n=n)}. {cure.format(n=n % 28 + 1)}"
            f" {remark.format(n=n % 27 + 2)} So much for round {n} of this."
        )


def _call(turn: int, name: str) -> common_pb2.Part:
    failed = turn % 7 == 0
    given = Struct()
    given.update({"night": f"2026-03-{turn % 28 + 1:02}", "part": turn, "limit": 200})
    lines = (
        f"2026-03-{turn % 28 + 1:02}T0{line % 9}:{line % 60:02}:17Z reduction[{turn}] frame {line:04}"
        f" bias={line * 37 % 991} flat={line * 53 % 877} {'WARN duplicate' if line % 97 == 17 else 'ok'}"
        for line in range(50 + turn * 7 % 190)
    )
    return common_pb2.Part(
        tool=common_pb2.ToolPart(
            tool_id=f"call_{turn}",
            tool_name=name,
            input=given,
            output="Traceback: the connection was reset by the archive" if failed else "\n".join(lines),
            status=common_pb2.TOOL_STATUS_ERROR if failed else common_pb2.TOOL_STATUS_COMPLETED,
            duration=Duration(seconds=turn % 5, nanos=250_000_000),
            total_tokens=900 + 31 * turn,
        )
    )


def _text(text: str) -> common_pb2.Part:
    return common_pb2.Part(text=common_pb2.TextPart(text=text))


def _message(number: int, role: str, parts: list[common_pb2.Part], speaker: str = "") -> common_pb2.Message:
    made = common_pb2.Message(
        id=f"msg_{number}",
        sequence=number,
        role=common_pb2.ROLE_ASSISTANT if role == "assistant" else common_pb2.ROLE_USER,
        parts=parts,
        speaker=speaker,
    )
    made.create_time.FromDatetime(BEGIN + timedelta(minutes=23 * number))
    return made
