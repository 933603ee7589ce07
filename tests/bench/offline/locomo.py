"""What the offline engine keeps of LoCoMo, a data set of long chats, held against the annotators' own notes.

    python -m tests.bench.offline.locomo [--json] [FILE]

Each conversation is one session of one message a turn, worked on by the engine as it is, with an empty space. A turn
counts as kept when a memory cites its message. No text is printed. The data set is not part of this repository; without
FILE the one beside the checkout is used, and when it is not there nothing is measured and the last line says so.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep.v1 import common_pb2
from runekeep_extractor.engine.interface import Engine, EngineOutput
from runekeep_extractor.engines import open_engine
from runekeep_extractor.settings import ExtractorSettings
from tests.doubles.fixed_job import LONG_TERM, FixedJob

BESIDE = Path(__file__).parents[4] / "shared" / "data" / "locomo-dev.json"

_TURN = re.compile(r"D\d+:\d+")
# Category 5 asks for what was never said.
_ASKED = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat: its turns as messages, with the data set's name of each."""

    name: str
    messages: tuple[common_pb2.Message, ...]
    turns: tuple[str, ...]
    observed: frozenset[str]
    """Turns from which the annotators drew a fact."""
    evidence: frozenset[str]
    """Turns that answer a question."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Counts over turns and memories of some conversations."""

    turns: int
    kept: int
    observed: int
    observed_kept: int
    evidence: int
    evidence_kept: int
    memories: int
    memories_observed: int
    """Memories of which at least one cited turn is an observed one."""

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        rows = [asdict(part).values() for part in parts]
        return cls(*(sum(column) for column in zip(*rows, strict=True)))

    def figures(self) -> dict[str, float]:
        return asdict(self) | {
            "kept_share": _share(self.kept, self.turns),
            "observed_share": _share(self.observed, self.turns),
            "evidence_recall": _share(self.evidence_kept, self.evidence),
            "observed_recall": _share(self.observed_kept, self.observed),
            "turn_precision": _share(self.observed_kept, self.kept),
            "memory_precision": _share(self.memories_observed, self.memories),
        }


def conversations(data: Sequence[Mapping[str, Any]]) -> list[Conversation]:
    """The conversations of the data set's JSON."""
    return [_conversation(one) for one in data]


def _conversation(one: Mapping[str, Any]) -> Conversation:
    chat = one["conversation"]
    messages: list[common_pb2.Message] = []
    turns: list[str] = []
    for key in sorted((key for key in chat if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:])):
        said = datetime.strptime(chat[f"{key}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in chat[key]:
            message = common_pb2.Message(
                id=f"msg_{len(messages) + 1}",
                sequence=len(messages) + 1,
                role=common_pb2.ROLE_USER,
                speaker=turn["speaker"],
                parts=[common_pb2.Part(text=common_pb2.TextPart(text=turn["text"]))],
            )
            message.create_time.FromDatetime(said)
            messages.append(message)
            turns.append(turn["dia_id"])
    observed = _cited(entry[1] for notes in one["observation"].values() for facts in notes.values() for entry in facts)
    evidence = _cited(qa["evidence"] for qa in one["qa"] if qa["category"] in _ASKED and qa.get("evidence"))
    there = frozenset(turns)
    return Conversation(str(one["sample_id"]), tuple(messages), tuple(turns), observed & there, evidence & there)


def _cited(entries: Iterable[object]) -> frozenset[str]:
    """Turns that entries name, alone, in a list, or several in one text."""
    return frozenset(turn for entry in entries for turn in _TURN.findall(json.dumps(entry)))


def measure(conversation: Conversation, output: EngineOutput) -> Kept:
    """What an output kept of a conversation, whatever the words."""
    cited = [
        {
            conversation.turns[sequence - 1]
            for span in operation.ranges
            for sequence in range(span.start_sequence, span.end_sequence + 1)
        }
        for operation in output.operations
        if operation.WhichOneof("operation") != "delete"
    ]
    kept = frozenset[str]().union(*cited)
    return Kept(
        turns=len(conversation.turns),
        kept=len(kept),
        observed=len(conversation.observed),
        observed_kept=len(kept & conversation.observed),
        evidence=len(conversation.evidence),
        evidence_kept=len(kept & conversation.evidence),
        memories=len(cited),
        memories_observed=sum(bool(turns & conversation.observed) for turns in cited),
    )


async def judge(engine: Engine, conversation: Conversation) -> Kept:
    """Has the engine work on one conversation."""
    job = FixedJob(list(conversation.messages), long_term=LONG_TERM, execution=(), summarize=False)
    return measure(conversation, await engine.extract(job))


async def run(given: Sequence[Conversation], progress: Progress) -> tuple[common_pb2.ExtractorInfo, dict[str, Kept]]:
    """Has the engine work on every conversation, one after the other."""
    engine = open_engine(ExtractorSettings(engine="offline"))
    try:
        kept = {
            conversation.name: await judge(engine, conversation)
            for conversation in progress.track(given, description="conversations")
        }
    finally:
        await engine.close()
    return engine.info, kept


def table(kept: Mapping[str, Kept]) -> Table:
    """The figures, a row a conversation and one for all."""
    made = Table(title="LoCoMo", title_justify="left")
    made.add_column("conversation")
    for name in ("turns", "kept", "evidence kept", "precision of turns", "of memories", "observed kept"):
        made.add_column(name, justify="right")
    for name, row in [*kept.items(), ("all", Kept.sum(kept.values()))]:
        figures = row.figures()
        shares = ("kept_share", "evidence_recall", "turn_precision", "memory_precision", "observed_recall")
        made.add_row(name, str(row.turns), *(f"{figures[share]:.3f}" for share in shares))
    return made


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", default=BESIDE, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    given = parser.parse_args()
    if not given.file.exists():
        print(json.dumps({"bench": "offline-locomo", "skipped": "the data set is not there"}))
        return
    data = conversations(json.loads(given.file.read_text(encoding="utf-8")))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        info, kept = asyncio.run(run(data, progress))
    if not given.json:
        Console().print(table(kept))
    made = {
        "bench": "offline-locomo",
        "file": given.file.name,
        "engine": {"name": info.engine, "version": info.version},
        "all": Kept.sum(kept.values()).figures(),
        "by_conversation": {name: row.figures() for name, row in kept.items()},
    }
    print(json.dumps(made))


if __name__ == "__main__":
    main()
