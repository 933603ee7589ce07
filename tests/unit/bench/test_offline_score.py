"""The figures of `tests.bench.offline.score`, on lines made up here; the labelled file itself is only loaded."""

import json
from pathlib import Path

import pytest

from runekeep.v1 import extractor_service_pb2
from runekeep_extractor.engine.interface import EngineOutput
from tests.bench.offline.score import (
    LABELLED,
    SEVERAL,
    Line,
    Verdict,
    figures,
    judge,
    load,
    measure,
    tables,
    verdict_of,
)

SECRET = "The zeppelin lands at noon."


def line(id: str, **rest: object) -> Line:
    given = {"role": "user", "speaker": "", "date": "2026-03-05", "text": SECRET, "why": "made up", "language": "en"}
    return Line.model_validate(given | {"id": id, "keep": bool(rest.keys() & {"type", "types"})} | rest)


def written(*types: str, times: tuple[str, ...] = ()) -> Verdict:
    return Verdict(types=frozenset(types), event_times=frozenset(times))


def test_keeping_counts_both_kinds_of_mistakes() -> None:
    score = measure(
        [
            (line("a", type="profile"), written("profile")),
            (line("b", type="profile"), written()),
            (line("c", type="profile", language="de"), written()),
            (line("d"), written("profile")),
            (line("e"), written("events")),
            (line("f"), written()),
        ]
    )
    assert (score.overall.precision, score.overall.recall, score.overall.f1) == (0.3333, 0.3333, 0.3333)
    german = score.by_language["de"]
    assert (german.lines, german.precision, german.recall, german.f1) == (1, None, 0.0, 0.0)
    assert score.written["profile"] == (2, 1, 1)
    assert score.written["events"] == (1, 0, 0)


def test_any_accepted_type_is_right_and_a_stray_one_is_told_apart() -> None:
    score = measure(
        [
            (line("a", types=["profile", "preferences"]), written("preferences")),
            (line("b", type="events"), written("events", "entities")),
            (line("c", type="events"), written("profile")),
            (line("d"), written("profile")),
        ]
    )
    assert (score.overall.rightly_kept, score.type_right, score.type_right_only) == (3, 2, 1)
    assert score.labelled[SEVERAL] == (1, 1, 1)
    assert score.labelled["events"] == (2, 2, 1)


def test_dates_are_judged_only_where_an_event_was_written() -> None:
    score = measure(
        [
            (line("a", type="events", when="2026-03-04"), written("events", times=("2026-03-04",))),
            (line("b", type="events", when="2026-03"), written("events", times=("2026-03-04",))),
            (line("c", type="events", when="2025"), written("events", times=("",))),
            (line("d", type="events", when="2025"), written("profile")),
            (line("e", type="events"), written("events", times=("2026-03-05",))),
        ]
    )
    assert (score.dates, score.dates_judged, score.dates_right, score.dates_missing) == (4, 3, 1, 1)


def test_a_pair_counts_only_when_both_lines_are_right() -> None:
    score = measure(
        [
            (line("a", type="profile", pair="p1"), written("profile")),
            (line("b", pair="p1"), written()),
            (line("c", type="profile", pair="p2"), written("profile")),
            (line("d", pair="p2"), written("profile")),
        ]
    )
    assert (score.pairs, score.pairs_right) == (2, 1)


def test_only_writes_keep_something() -> None:
    output = EngineOutput()
    output.operations.append(
        extractor_service_pb2.MemoryOperation(write=extractor_service_pb2.WriteOp(memory_type="events"))
    )
    output.operations.append(
        extractor_service_pb2.MemoryOperation(delete=extractor_service_pb2.DeleteOp(uri="viking://user/default/x"))
    )
    verdict = verdict_of(output)
    assert (verdict.types, verdict.event_times, verdict.other_operations) == ({"events"}, {""}, 1)


def test_no_sentence_is_shown(tmp_path: Path) -> None:
    score = measure([(line("a", type="profile", pair="p1"), written()), (line("b", pair="p1"), written("events"))])
    shown = json.dumps(figures(score)) + "".join(
        str(cell) for table in tables(score) for column in table.columns for cell in column.cells
    )
    assert "zeppelin" not in shown
    assert "zeppelin" not in repr(line("a"))
    bad = tmp_path / "bad.jsonl"
    good = line("a").model_dump_json()
    listed = good.replace(f'"{SECRET}"', f'["{SECRET}"]')
    for text in (good[:-5], good.replace('"keep":false', '"keep":true'), listed):
        bad.write_text(text)
        with pytest.raises(ValueError, match=r"bad\.jsonl, line 1") as refused:
            load(bad)
        assert "zeppelin" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    odd = line("a", text="one\u2028two")
    file.write_text(json.dumps(odd.model_dump(mode="json"), ensure_ascii=False) + "\n\n", encoding="utf-8")
    assert load(file) == [odd]
    file.write_text(2 * (odd.model_dump_json() + "\n"), encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: the id is taken"):
        load(file)


async def test_an_engine_failure_names_the_line_alone() -> None:
    class Broken:
        async def extract(self, job: object) -> EngineOutput:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError) as raised:
        await judge(Broken(), line("a"))  # type: ignore[arg-type]  # wrong on purpose
    assert raised.value.__notes__ == ["at line a"]


def test_the_labelled_file_holds_what_its_readme_counts() -> None:
    lines = load(LABELLED)
    assert (len(lines), sum(one.keep for one in lines)) == (300, 150)
    assert sum(one.language != "en" for one in lines) == 25
    sides: dict[str, set[bool]] = {}
    for one in lines:
        if one.pair is not None:
            sides.setdefault(one.pair, set()).add(one.keep)
    assert len(sides) == 23
    assert all(kept == {True, False} for kept in sides.values())
