"""Shows the model the notes of a commit's turns beside the messages, and requests notes for the turns that
have none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.prompts.delimiters import fenced
from runekeep_extractor.prompts.records import line
from runekeep_extractor.prompts.split import Piece
from runekeep_extractor.turns.turn_prompt import SIGNAL_RULES, last_fitting, noted, spoke
from runekeep_schemas.turns.text import cut
from runekeep_schemas.turns.text import line as words

MAX_ASKED: Final = 16
"""Maximum turns to note in one call, the newest ones: the operations need room in the same answer."""

_EVIDENCE_LENGTH: Final = 20_000
# Characters of the user's earlier text of a turn that is shown only in part.
_EARLIER_LENGTH: Final = 1_000


@dataclass(frozen=True, slots=True)
class ShownTurns:
    """The turns in the prompt of a piece. `asked`: ids of the turns to note, by short name; if empty, the prompt does
    not ask for notes. `left`: number of further turns without notes, which get none by this commit.
    """

    asked: Mapping[str, str]
    sections: Sequence[str]
    left: int = 0


class TurnEvidence:
    """Turns of one commit. `pieces`: its whole conversation."""

    def __init__(self, job: Job, pieces: Sequence[Piece]) -> None:
        self._job = job
        self._said: dict[str, list[common_pb2.Message]] = {}
        for message in job.messages:
            if message.turn_id:
                self._said.setdefault(message.turn_id, []).append(message)
        # If a message is shown in parts, the last one holds its end.
        ends = {message.sequence: piece.number for piece in pieces for message in piece.messages}
        self._ends = {turn_id: ends.get(said[-1].sequence, 0) for turn_id, said in self._said.items()}

    def of(self, piece: Piece, *, ask: bool = True) -> ShownTurns:
        """Returns the turns with messages in the piece. Notes are requested in the piece where a turn ends, so that
        each turn is requested once.
        """
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
        unnoted = wanted[-MAX_ASKED:] if ask else []
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
        # No note may rest only on the assistant's words.
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
        """Returns the numbers of the turn's messages in this batch: `1-3, 7`."""
        return ", ".join(_spans([message.sequence for message in self._said[one.turn.turn_id]]))


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        held = [number for _, number in run]
        yield str(held[0]) if len(held) == 1 else f"{held[0]}-{held[-1]}"
