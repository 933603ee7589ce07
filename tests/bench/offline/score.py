"""How well the offline engine tells what is worth keeping, on labelled sentences that its rules were not made from.

    python -m tests.bench.offline.score [--json] [FILE]

Each line of the file is a conversation of one message, worked on by the engine as it is, with an
empty space; no server runs. Nothing of the file's text is printed, nor which lines went wrong:
who changes the rules by these figures must not learn the sentences. The file's format stands in README.md beside this.
"""

import argparse
import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep.v1 import common_pb2
from runekeep_extractor.engine.interface import Engine, EngineOutput
from runekeep_extractor.engines import open_engine
from runekeep_extractor.settings import ExtractorSettings
from tests.doubles.fixed_job import LONG_TERM, FixedJob

LABELLED = Path(__file__).with_name("labelled.jsonl")

SEVERAL = "several"
"""Row of the lines for which more than one type is right."""

TypeName = Literal["profile", "preferences", "entities", "events", "cases", "patterns", "tools", "skills"]

_ROLES = {"user": common_pb2.ROLE_USER, "assistant": common_pb2.ROLE_ASSISTANT}
_NOON = time(12, tzinfo=UTC)


class Line(BaseModel):
    """One labelled message. `when` is the day, month or year that an event's text means, said on `date`."""

    # A refused line must not be told by its text.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    id: str = Field(min_length=1)
    role: Literal["user", "assistant"]
    speaker: str
    date: date
    text: str = Field(min_length=1, repr=False)
    keep: bool
    type: TypeName | None = None
    types: tuple[TypeName, ...] = ()
    when: Annotated[str, Field(pattern=r"^\d{4}(-\d{2}(-\d{2})?)?$")] | None = None
    why: str = Field(min_length=1, repr=False)
    language: str = Field(pattern=r"^[a-z]{2,3}$")
    pair: str | None = None
    """Name shared by two lines that differ in a word and in `keep`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.keep != (self.type is not None or len(self.types) > 1) or (self.type and self.types):
            raise ValueError("a line to keep has one `type` or several `types`, another has neither")
        if self.when is not None and "events" not in self.accepted:
            raise ValueError("`when` belongs to events")
        return self

    @property
    def accepted(self) -> frozenset[str]:
        """Types that are right for it; none when it is not to be kept."""
        return frozenset(self.types or ([self.type] if self.type else []))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the engine wrote for one line."""

    types: frozenset[str] = frozenset()
    event_times: frozenset[str] = frozenset()
    """Of its events; the empty text for one without a time."""
    other_operations: int = 0
    """Edits and deletes: there is nothing in the space that they could be about, so they keep nothing."""

    @property
    def kept(self) -> bool:
        return bool(self.types)


@dataclass(frozen=True, slots=True)
class Keeping:
    """How keeping was decided over some lines; a rate without a denominator is None."""

    lines: int
    to_keep: int
    kept: int
    rightly_kept: int

    @classmethod
    def of(cls, judged: Iterable[tuple[Line, Verdict]]) -> Self:
        pairs = list(judged)
        return cls(
            lines=len(pairs),
            to_keep=sum(line.keep for line, _ in pairs),
            kept=sum(verdict.kept for _, verdict in pairs),
            rightly_kept=sum(line.keep and verdict.kept for line, verdict in pairs),
        )

    @property
    def precision(self) -> float | None:
        return _share(self.rightly_kept, self.kept)

    @property
    def recall(self) -> float | None:
        return _share(self.rightly_kept, self.to_keep)

    @property
    def f1(self) -> float | None:
        return _share(2 * self.rightly_kept, self.kept + self.to_keep)

    def figures(self) -> dict[str, float | None]:
        return asdict(self) | {"precision": self.precision, "recall": self.recall, "f1": self.f1}


@dataclass(frozen=True, slots=True)
class Score:
    """All figures of one run."""

    overall: Keeping
    by_language: dict[str, Keeping]
    labelled: dict[str, tuple[int, int, int]]
    """By labelled type: lines, of them kept, of those kept under a right type."""
    written: dict[str, tuple[int, int, int]]
    """By type that the engine wrote: lines, of them to keep, of those with this type right."""
    type_right: int
    """Lines rightly kept for which at least one memory has a right type."""
    type_right_only: int
    """Of them those for which every memory has."""
    dates: int
    """Lines with `when`."""
    dates_judged: int
    """Of them those kept as an event."""
    dates_right: int
    """Of those judged, the time is `when` to the letter."""
    dates_missing: int
    """Of those judged, no event has a time."""
    pairs: int
    pairs_right: int
    """Both lines decided rightly."""
    other_operations: int


def load(path: Path) -> list[Line]:
    """The lines of a file. Raises ValueError that names the line's number and what is wrong, never its text."""
    lines: list[Line] = []
    seen: set[str] = set()
    # Not splitlines(): it also breaks at U+2028, which may stand inside a text.
    for number, raw in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not raw.strip():
            continue
        try:
            line = Line.model_validate_json(raw)
        except ValueError as error:
            raise ValueError(f"{path.name}, line {number}: {error}") from None
        if line.id in seen:
            raise ValueError(f"{path.name}, line {number}: the id is taken")
        seen.add(line.id)
        lines.append(line)
    return lines


async def judge(engine: Engine, line: Line) -> Verdict:
    """Has the engine work on one line. Raises what the engine raises, with the line's id as a note."""
    message = common_pb2.Message(
        id=f"msg_{line.id}",
        sequence=1,
        role=_ROLES[line.role],
        speaker=line.speaker,
        parts=[common_pb2.Part(text=common_pb2.TextPart(text=line.text))],
    )
    message.create_time.FromDatetime(datetime.combine(line.date, _NOON))
    job = FixedJob([message], long_term=LONG_TERM, execution=(), summarize=False)
    try:
        return verdict_of(await engine.extract(job))
    except Exception as error:
        error.add_note(f"at line {line.id}")
        raise


def verdict_of(output: EngineOutput) -> Verdict:
    """What an output writes, whatever the words."""
    writes = [one.write for one in output.operations if one.WhichOneof("operation") == "write"]
    return Verdict(
        types=frozenset(write.memory_type for write in writes),
        event_times=frozenset(
            write.fields["event_time"].string_value if "event_time" in write.fields else ""
            for write in writes
            if write.memory_type == "events"
        ),
        other_operations=len(output.operations) - len(writes),
    )


def measure(judged: Sequence[tuple[Line, Verdict]]) -> Score:
    """The figures of lines with what the engine wrote for each."""
    rightly_kept = [(line, verdict) for line, verdict in judged if line.keep and verdict.kept]
    dated = [(line, verdict) for line, verdict in judged if line.when is not None and "events" in verdict.types]
    pairs: dict[str, list[bool]] = {}
    for line, verdict in judged:
        if line.pair is not None:
            pairs.setdefault(line.pair, []).append(line.keep == verdict.kept)
    return Score(
        overall=Keeping.of(judged),
        by_language={
            language: Keeping.of(pair for pair in judged if pair[0].language == language)
            for language in sorted({line.language for line, _ in judged})
        },
        labelled={name: _by_label(judged, name) for name in (*LONG_TERM, SEVERAL)},
        written={name: _by_written(judged, name) for name in LONG_TERM},
        type_right=sum(bool(line.accepted & verdict.types) for line, verdict in rightly_kept),
        type_right_only=sum(verdict.types <= line.accepted for line, verdict in rightly_kept),
        dates=sum(line.when is not None for line, _ in judged),
        dates_judged=len(dated),
        dates_right=sum(line.when in verdict.event_times for line, verdict in dated),
        dates_missing=sum(verdict.event_times == {""} for _, verdict in dated),
        pairs=len(pairs),
        pairs_right=sum(all(right) for right in pairs.values()),
        other_operations=sum(verdict.other_operations for _, verdict in judged),
    )


def _by_label(judged: Sequence[tuple[Line, Verdict]], name: str) -> tuple[int, int, int]:
    of_name = [(line, verdict) for line, verdict in judged if line.keep and (line.type or SEVERAL) == name]
    kept = [(line, verdict) for line, verdict in of_name if verdict.kept]
    return len(of_name), len(kept), sum(bool(line.accepted & verdict.types) for line, verdict in kept)


def _by_written(judged: Sequence[tuple[Line, Verdict]], name: str) -> tuple[int, int, int]:
    lines = [line for line, verdict in judged if name in verdict.types]
    return len(lines), sum(line.keep for line in lines), sum(name in line.accepted for line in lines)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


# What is printed


def tables(score: Score) -> list[Table]:
    """Rates over everything, by language, by labelled and by written type."""
    keeping = _table("Keeping", "language", "lines", "to keep", "kept", "precision", "recall", "F1")
    for language, row in (("all", score.overall), *score.by_language.items()):
        counts = (str(row.lines), str(row.to_keep), str(row.kept))
        keeping.add_row(language, *counts, *map(_shown, (row.precision, row.recall, row.f1)))
    labelled = _table("By labelled type", "type", "lines", "kept", "recall", "type right", "of the kept")
    for name, (lines, kept, right) in score.labelled.items():
        if lines:
            labelled.add_row(name, str(lines), str(kept), _shown(_share(kept, lines)), str(right), _rate(right, kept))
    written = _table("By written type", "type", "lines", "to keep", "precision", "type right", "of the written")
    for name, (lines, to_keep, right) in score.written.items():
        if lines:
            written.add_row(name, str(lines), str(to_keep), _rate(to_keep, lines), str(right), _rate(right, lines))
    rest = _table("Types and dates of what was rightly kept", "", "right", "of", "share")
    for title, right, whole in (
        ("a right type among the memories", score.type_right, score.overall.rightly_kept),
        ("only right types", score.type_right_only, score.overall.rightly_kept),
        ("date, where kept as an event", score.dates_right, score.dates_judged),
        ("date, of all that have one", score.dates_right, score.dates),
        ("pairs that differ in a word", score.pairs_right, score.pairs),
    ):
        rest.add_row(title, str(right), str(whole), _rate(right, whole))
    return [keeping, labelled, written, rest]


def figures(score: Score) -> dict[str, object]:
    """The same for machines."""
    return {
        "overall": score.overall.figures(),
        "types": {
            "right": score.type_right,
            "right_only": score.type_right_only,
            "accuracy": _share(score.type_right, score.overall.rightly_kept),
            "accuracy_only": _share(score.type_right_only, score.overall.rightly_kept),
        },
        "dates": {
            "labelled": score.dates,
            "judged": score.dates_judged,
            "right": score.dates_right,
            "missing": score.dates_missing,
            "accuracy": _share(score.dates_right, score.dates_judged),
        },
        "pairs": {"pairs": score.pairs, "right": score.pairs_right},
        "by_labelled_type": {
            name: {"lines": lines, "kept": kept, "type_right": right}
            for name, (lines, kept, right) in score.labelled.items()
        },
        "by_written_type": {
            name: {"lines": lines, "to_keep": to_keep, "type_right": right}
            for name, (lines, to_keep, right) in score.written.items()
        },
        "by_language": {language: keeping.figures() for language, keeping in score.by_language.items()},
        "other_operations": score.other_operations,
    }


def _table(title: str, first: str, *rest: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for name in rest:
        table.add_column(name, justify="right")
    return table


def _rate(part: int, whole: int) -> str:
    return _shown(_share(part, whole))


def _shown(share: float | None) -> str:
    return "–" if share is None else f"{share:.3f}"


async def run(lines: Sequence[Line], progress: Progress) -> tuple[common_pb2.ExtractorInfo, Score]:
    """Has the engine work on every line, one after the other."""
    engine = open_engine(ExtractorSettings(engine="offline"))
    judged = []
    try:
        for line in progress.track(lines, description="sentences"):
            judged.append((line, await judge(engine, line)))
    finally:
        await engine.close()
    return engine.info, measure(judged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", default=LABELLED, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    given = parser.parse_args()
    path = given.file
    lines = load(path)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        info, score = asyncio.run(run(lines, progress))
    if not given.json:
        console = Console()
        for table in tables(score):
            console.print(table)
    made = {
        "bench": "offline",
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "engine": {"name": info.engine, "model": info.model, "version": info.version},
    }
    print(json.dumps(made | figures(score)))


if __name__ == "__main__":
    main()
