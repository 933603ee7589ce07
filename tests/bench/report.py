"""The report of a run: sections as plain JSON, and the page that is printed from them.

A report is {"sections": [...]}; a section stands by itself, with the run that it is of, so that a part may be measured
again while the others stay.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from tests.bench.figures import Figure, ratios

FINDINGS = "findings.md"
"""Written by people, beside the page."""
DIGITS = 5
"""Of each number in the JSON."""
MAKE = "make bench"


@dataclass(frozen=True, slots=True)
class Run:
    """What a section was measured with. `load`: the machine's, before and behind, as runnable processes in the last
    minute, our own included. `date`: UTC. `commit`: of the tree; `changed`: with changes that no commit has."""

    date: str
    commit: str
    changed: bool
    seconds: float
    load: tuple[float, float]
    processors: int
    memory_gb: float
    repeats: int
    stores: Sequence[str]
    versions: Mapping[str, str]


def section(part: ModuleType, run: Run, figures: Sequence[Figure]) -> dict[str, Any]:
    """`part`: its docstring says what it measures."""
    return {
        "part": part.__name__.rpartition(".")[2],
        "what": inspect.getdoc(part) or "",
        "run": {**asdict(run), "stores": list(run.stores), "load": list(run.load)},
        "figures": [plain(figure) for figure in figures],
    }


def plain(figure: Figure) -> dict[str, Any]:
    """With what follows from its repetitions."""
    made: dict[str, Any] = {
        "name": figure.name,
        "store": figure.store,
        "unit": figure.unit,
        "value": short(figure.value),
        "spread": [short(min(figure.each)), short(max(figure.each))],
        "each": [short(one) for one in figure.each],
    }
    if (p95 := figure.p95_value) is not None:
        made["p95"] = short(p95)
        made["p95_each"] = [short(one) for one in figure.p95]
    if figure.floor is not None:
        made["floor"] = {
            "name": figure.floor.name,
            "value": short(figure.floor.value),
            "each": [short(one) for one in figure.floor.each],
        }
        assert figure.share is not None
        made["share"] = short(figure.share)
        made["share_each"] = [short(one) for one in figure.share_each]
    if figure.target is not None:
        made["target"] = {**asdict(figure.target), "reached": figure.reached}
    if figure.notes:
        made["notes"] = {name: short(value) for name, value in figure.notes.items()}
    return made


def short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def merged(report: Mapping[str, Any], made: Sequence[dict[str, Any]], order: Sequence[str]) -> dict[str, Any]:
    """With the new sections in place of the old ones of the same parts, in the order of the parts."""
    sections = {one["part"]: one for one in (*report.get("sections", ()), *made)}
    return {"sections": [sections[part] for part in order if part in sections]}


# The page


def page(report: Mapping[str, Any], plots: Mapping[str, Sequence[tuple[str, str]]], parts: Sequence[str] = ()) -> str:
    """Markdown. `plots`: by part, files beside the page with a sentence on each. `parts`: all that could be there."""
    lacking = set(parts) - {one["part"] for one in report["sections"]}
    blocks = [
        "# What it takes",
        f"Made by `{MAKE}` ([`tests/bench`](../../tests/bench/__main__.py)) from [report.json](report.json); do not"
        " edit it. Real processes, loads by a client in a process of its own, which fails the run on any status but OK."
        " Each figure is the median of its repetitions, and stands beside a floor that was measured in turns with it."
        " Its share is the median over the repetitions, each held against its own floor, and depends little on what"
        " else the machine did; times by the clock do, and the machine's load stands at each part. Least and most are"
        " those of the repetitions. `make bench-again` measures once more, and says which shares it finds again.",
        "## Targets",
        _targets(report),
    ]
    if lacking:
        blocks.append(f"Not measured yet: {', '.join(part for part in parts if part in lacking)}.")
    for one in report["sections"]:
        blocks += [f"## {one['part'].capitalize()}", one["what"], of_run(one["run"])]
        blocks += [f"![{says}]({file})" for file, says in plots.get(one["part"], ())]
        blocks.append(_table(one["figures"]))
    return "\n\n".join(blocks) + "\n"


def _targets(report: Mapping[str, Any]) -> str:
    found = [
        (section["part"], figure)
        for section in report["sections"]
        for figure in section["figures"]
        if "target" in figure
    ]
    if not found:
        return "None of the parts that were measured has one."
    lines = ["| part | what | store | target | found | reached |", "|---|---|---|---|---:|---|"]
    for part, figure in found:
        target = figure["target"]
        lines.append(
            f"| {part} | {figure['name']} | {figure['store']} | {target_text(figure)} | {_held(figure)} |"
            f" {'yes' if target['reached'] else '**no**'} |"
        )
    missed = sum(not figure["target"]["reached"] for _, figure in found)
    told = f"{len(found) - missed} of {len(found)} were reached."
    if missed:
        told += f" Why the others were not: [{FINDINGS}]({FINDINGS})."
    return "\n".join([*lines, "", told])


def target_text(figure: Mapping[str, Any]) -> str:
    target = figure["target"]
    match target["of"]:
        case "share":
            return f"{target['bound']} {number(target['limit'])} of {figure['floor']['name']}"
        case "p95":
            return f"p95 {target['bound']} {number(target['limit'])} {figure['unit']}"
        case _:
            return f"{target['bound']} {number(target['limit'])} {figure['unit']}"


def _held(figure: Mapping[str, Any]) -> str:
    """What the target is held against."""
    return number(figure[figure["target"]["of"]])


def of_run(run: Mapping[str, Any]) -> str:
    before, behind = run["load"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    repeats = f"{run['repeats']} repetition{'s' if run['repeats'] > 1 else ''}"
    return (
        f"Measured on {run['date']} UTC at commit {run['commit']}{' with changes' if run['changed'] else ''}, in"
        f" {number(run['seconds'])} s; {repeats}; {run['processors']} processors,"
        f" {number(run['memory_gb'])} GB of memory; load {before:.1f} before and {behind:.1f} behind it, its own"
        f" included. {versions}."
    )


def _table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the same thing on several stores stand together."""
    columns = {"what": "---", "store": "---", "value": "---:", "p95": "---:", "least to most": "---:"}
    columns |= {
        "floor": "---:",
        "of floor": "---:",
        "of floor, least to most": "---:",
        "target": "---",
        "beside it": "---",
    }
    things = list(dict.fromkeys((figure["name"], figure["unit"]) for figure in figures))
    rows = [
        {
            "what": figure["name"],
            "store": figure["store"],
            "value": f"{number(figure['value'])} {figure['unit']}",
            "p95": number(figure["p95"]) if "p95" in figure else "",
            "least to most": _range(figure["each"]),
            "floor": f"{figure['floor']['name']}: {number(figure['floor']['value'])}" if "floor" in figure else "",
            "of floor": number(figure["share"]) if "floor" in figure else "",
            "of floor, least to most": _range(shares_of(figure)),
            "target": _verdict(figure),
            "beside it": "; ".join(f"{name}: {number(value)}" for name, value in figure.get("notes", {}).items()),
        }
        for figure in sorted(figures, key=lambda one: things.index((one["name"], one["unit"])))
    ]
    used = {name: align for name, align in columns.items() if any(row[name] for row in rows)}
    lines = [_line(used), _line(used.values())]
    return "\n".join([*lines, *(_line(row[name] for name in used) for row in rows)])


def shares_of(figure: Mapping[str, Any]) -> list[float]:
    """A share of the floor for each repetition; none where there is no floor."""
    return ratios(figure["each"], figure["floor"]["each"]) if "floor" in figure else []


def _range(each: Sequence[float]) -> str:
    return f"{number(min(each))} to {number(max(each))}" if len(each) > 1 else ""


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _verdict(figure: Mapping[str, Any]) -> str:
    if "target" not in figure:
        return ""
    return f"{target_text(figure)}: {'reached' if figure['target']['reached'] else '**missed**'}"


def number(value: float) -> str:
    """With as many digits as are worth reading."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 0.1 else 3}f}"
