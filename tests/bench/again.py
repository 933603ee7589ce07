"""Two reports side by side: whether a second run of `make bench` finds the same shares and the same verdicts.

    python -m tests.bench.again FIRST/report.json SECOND/report.json [--page docs/bench/again.md] [--json]

What is held against each other: every share of a floor, and every figure with a target of another kind. Two of them
agree within noise where the ranges of their repetitions, least to most, have a value in common, or where their medians
are within NEAR of each other. Where repetitions scatter ranges are wide, and to agree says little: how many there are
of those is told too.
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.pairs import NEAR, Compared, Pair, compared
from tests.bench.report import number, of_run

WIDE = 0.25
"""A range, as a part of its median, from which on we say so."""


def page(found: Compared) -> str:
    """Markdown."""
    shares = [pair for pair in found.pairs if pair.of == "share"]
    others = [pair for pair in found.pairs if pair.of != "share"]
    verdicts = [pair for pair in found.pairs if pair.target]
    differ = [pair for pair in verdicts if not pair.same_verdict]
    wide = [pair for pair in found.pairs if max(pair.first.spread, pair.second.spread) > WIDE]
    chance = number(sum(pair.chance for pair in shares))
    blocks = [
        "# Measured again",
        "Made by `make bench-again` ([`tests/bench`](../../tests/bench/again.py)) from two reports; do not edit it."
        " Held against each other are all shares of a floor, and the figures that another target is of. Two agree"
        " within noise where the ranges of their repetitions have a value in common, or their medians are within"
        f" {NEAR:.0%} of each other.",
        f"**{_agree(shares)} shares agree within noise, {_agree(others)} other figures, and"
        f" {len(verdicts) - len(differ)} of {len(verdicts)} verdicts on targets are the same.** Other figures are times"
        " and rates by the clock, processor time and memory, which follow the machine. Ranges of few repetitions may"
        f" lie apart where nothing differs: those of {chance} shares would by chance."
        f"{_apart(shares)} Of {len(wide)} figures the repetitions of a run range over more than {WIDE:.0%} of their"
        " median: that these agree says less. Those that do not agree stand first.",
    ]
    if differ:
        blocks += ["Verdicts that differ:", "\n".join(f"- {_told(pair)}" for pair in differ)]
    if found.only:
        blocks += ["In one report alone:", "\n".join(f"- {name}" for name in found.only)]
    blocks += ["## Runs", "\n".join(_runs(found.runs)), "## Figures", _table(found.pairs)]
    return "\n\n".join(blocks) + "\n"


def _agree(pairs: Sequence[Pair]) -> str:
    return f"{sum(pair.agrees for pair in pairs)} of {len(pairs)}"


def _apart(shares: Sequence[Pair]) -> str:
    if not shares:
        return ""
    apart = sorted(pair.apart for pair in shares)
    most = apart[(len(apart) * 9 - 1) // 10]
    return (
        f" Of half of the shares the medians are within {statistics.median(apart):.0%} of each other, of nine in ten"
        f" within {most:.0%}."
    )


def _told(pair: Pair) -> str:
    first, second = (
        f"{number(one.median)}, {'reached' if one.reached else 'missed'}" for one in (pair.first, pair.second)
    )
    return f"{pair.part}: {pair.name}, {pair.store}, {pair.target}: {first}; then {second}"


def _runs(runs: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    return [
        f"- {part}, {which}: {of_run(run)}"
        for part, *both in runs
        for which, run in zip(("first", "second"), both, strict=True)
    ]


def _table(pairs: Sequence[Pair]) -> str:
    lines = [
        "| part | what | store | of | first | least to most | second | least to most | apart | agree | target |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for pair in pairs:
        of = f"{pair.unit}, {'of its floor' if pair.of == 'share' else pair.of}"
        cells = [pair.part, pair.name, pair.store, of]
        for one in (pair.first, pair.second):
            cells += [number(one.median), f"{number(min(one.each))} to {number(max(one.each))}"]
        cells += [f"{pair.apart:.0%}", "yes" if pair.agrees else "**no**", _verdict(pair)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdict(pair: Pair) -> str:
    if not pair.target:
        return ""
    told = "reached" if pair.first.reached else "missed"
    return f"{told} by both" if pair.same_verdict else "**differs**"


def plain(found: Compared) -> dict[str, Any]:
    """For programs."""
    pairs = [
        {
            **asdict(pair),
            "apart": pair.apart,
            "agrees": pair.agrees,
            "chance": pair.chance,
            "same_verdict": pair.same_verdict,
        }
        for pair in found.pairs
    ]
    return {"near": NEAR, "agree": sum(pair.agrees for pair in found.pairs), "pairs": pairs, "only": list(found.only)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.again", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument("--json", action="store_true", help="print the JSON in place of the page")
    options = parser.parse_args()
    found = compared(*(json.loads(file.read_text()) for file in (options.first, options.second)))
    told = page(found)
    if options.page is not None:
        options.page.write_text(told)
    print(json.dumps(plain(found), ensure_ascii=False) if options.json else told)


if __name__ == "__main__":
    main()
