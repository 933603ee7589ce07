"""Turns of a commit: what was noted of them is shown beside the messages, and what nobody noted is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from extractor.anthropic_engine.fences import fenced
from extractor.anthropic_engine.records import line
from extractor.anthropic_engine.split import Piece
from extractor.anthropic_engine.turn_prompt import SIGNAL_RULES, last_fitting, noted, spoke
from extractor.engine import Job
from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from schemas.turns.text import cut
from schemas.turns.text import line as words

MOST_ASKED: Final = 16
"""Turns that one call gives notes of, the newest ones: the operations need room in the same answer."""

_EVIDENCE_LENGTH: Final = 20_000
# Characters of what the user said in a turn before what is shown of it.
_EARLIER_LENGTH: Final = 1_000


@dataclass(frozen=True, slots=True)
class ShownTurns:
    """What a call about a piece is told of turns. `asked`: ids of the turns that it gives notes of, by the names that
    the model knows them by; where there are none, nothing about it is in the prompt. `left`: how many more have no
    notes, and get none by this commit.
    """

    asked: Mapping[str, str]
    sections: Sequence[str]
    left: int = 0


class TurnEvidence:
    """Of one commit. `pieces`: all of its conversation."""

    def __init__(self, job: Job, pieces: Sequence[Piece]) -> None:
        self._job = job
        self._said: dict[str, list[common_pb2.Message]] = {}
        for message in job.messages:
            if message.turn_id:
                self._said.setdefault(message.turn_id, []).append(message)
        # Where a message is shown in parts, the last one holds its end.
        ends = {message.sequence: piece.number for piece in pieces for message in piece.messages}
        self._ends = {turn_id: ends.get(said[-1].sequence, 0) for turn_id, said in self._said.items()}

    def of(self, piece: Piece, *, ask: bool = True) -> ShownTurns:
        """Turns with messages in the piece. Those that end in it are asked for, so that each is asked for once."""
        shown = {message.sequence for message in piece.messages}
        there = [(f"t{number}", one) for number, one in enumerate(self._job.turns, start=1) if self._is_in(one, shown)]
        sections = []
        evidence = [
            line({"turn": name, "messages": self._numbers(one), **noted(one.turn)})
            for name, one in there
            if one.turn.HasField("fingerprint")
        ]
        kept = last_fitting(evidence, _EVIDENCE_LENGTH)
        if kept:
            sections.append(
                "# Turns\n\nWhat was understood of turns when they were said, to read the messages by. Memories rest "
                "on messages.\n" + fenced(self._job, "turns", kept)
            )
        wanted = [(name, one) for name, one in there if self._is_wanted(one, piece)]
        unnoted = wanted[-MOST_ASKED:] if ask else []
        if unnoted:
            records = [line(self._asked_record(name, one, shown)) for name, one in unnoted]
            sections.append(
                "# Turns to be noted\n\nNobody noted what these turns said. Besides the operations give an entry of "
                "`turns` for each, by its name in `turn`:\n" + SIGNAL_RULES + fenced(self._job, "unnoted", records)
            )
        asked = {name: one.turn.turn_id for name, one in unnoted}
        return ShownTurns(asked, sections, left=len(wanted) - len(asked))

    def _is_in(self, one: pb.CandidateTurn, shown: set[int]) -> bool:
        return any(message.sequence in shown for message in self._said.get(one.turn.turn_id, ()))

    def _is_wanted(self, one: pb.CandidateTurn, piece: Piece) -> bool:
        turn_id = one.turn.turn_id
        if one.turn.HasField("fingerprint") or self._ends[turn_id] != piece.number:
            return False
        # Nothing of it rests on what only the assistant said.
        return any(spoke(message, common_pb2.ROLE_USER) for message in self._said[turn_id])

    def _asked_record(self, name: str, one: pb.CandidateTurn, shown: set[int]) -> dict[str, str]:
        earlier = (
            part.text.text
            for message in self._said[one.turn.turn_id]
            if message.role == common_pb2.ROLE_USER and message.sequence not in shown
            for part in message.parts
        )
        return {
            "turn": name,
            "messages": self._numbers(one),
            "user_said_earlier": cut(words(" ".join(earlier)), _EARLIER_LENGTH),
        }

    def _numbers(self, one: pb.CandidateTurn) -> str:
        """Numbers of the turn's messages in this batch: `1-3, 7`."""
        return ", ".join(_spans([message.sequence for message in self._said[one.turn.turn_id]]))


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        held = [number for _, number in run]
        yield str(held[0]) if len(held) == 1 else f"{held[0]}-{held[-1]}"
