"""A few plots of a report, as SVG: the same figures give the same bytes. Text stays text, and both light and dark pages
are drawn for."""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import SQLITE

FOLDER = "plots"

# In the light and in the dark; `PAPER` and `INK` by a media query in the file, the rest stand out on both.
INK, DARK_INK = "#1f2328", "#e6edf3"
PAPER, DARK_PAPER = "#ffffff", "#0d1117"
FAINT, DARK_FAINT = "#d1d9e0", "#3d444d"
BLUE, ORANGE, GREEN, GREY = "#2f81f7", "#d9822b", "#2da44e", "#8b949e"

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "runekeep",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 10,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}

Figures = Sequence[Mapping[str, Any]]


def draw(report: Mapping[str, Any], folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Writes those for which there are figures to FOLDER in `folder`. By part: their paths there, with a sentence
    each."""
    import matplotlib

    drawn: dict[str, list[tuple[str, str]]] = {}
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for section in report["sections"]:
        for name, says, make in _PLOTS.get(section["part"], ()):
            with matplotlib.rc_context(_STYLE):
                figure = make(section["figures"])
                if figure is None:
                    continue
                (folder / FOLDER / f"{name}.svg").write_text(_svg(figure), encoding="utf-8")
            drawn.setdefault(section["part"], []).append((f"{FOLDER}/{name}.svg", says))
    return drawn


def _svg(figure: Any) -> str:
    file = io.StringIO()
    # No date: the same figures are the same file.
    figure.savefig(file, format="svg", metadata={"Date": None})
    return _for_both(file.getvalue())


def _for_both(svg: str) -> str:
    """With the colours of a dark page where that is what the reader has."""
    rules = "".join(
        f'[style*="{property_}: {light}"]{{{property_}:{dark}!important}}'
        for light, dark in ((INK, DARK_INK), (PAPER, DARK_PAPER), (FAINT, DARK_FAINT))
        for property_ in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    start = re.search(r"<svg[^>]*>", svg)
    assert start is not None
    # Lines of matplotlib end with a space here and there.
    lines = (svg[: start.end()] + style + svg[start.end() :]).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _axes(panels: int, **options: Any) -> tuple[Any, Sequence[Any]]:
    """Without pyplot, which keeps figures and asks for a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * panels if panels > 1 else 6.4, 3.5), layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False, **options)[0]


def _finish(axes: Any, x: str, y: str, title: str = "") -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    # Panels side by side share the axis: what a later one holds may reach higher.
    axes.set_ylim(bottom=0, auto=None)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _stores(figures: Figures) -> list[str]:
    return list(dict.fromkeys(figure["store"] for figure in figures if figure["store"]))


def _numbered(
    figures: Figures, pattern: str, unit: str, store: str | None = None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Figures whose name matches, by the number in it, the least first."""
    found = []
    for figure in figures:
        match = re.search(pattern, figure["name"])
        if match and figure["unit"] == unit and store in (None, figure["store"]):
            found.append((int(match[1].replace(",", "")), figure))
    return iter(sorted(found, key=lambda one: one[0]))


# Each of the plots


def _append_rates(figures: Figures) -> Any:
    lines = (
        ("bare echo", GREY, "--"),
        ("append to many sessions, with a request id", BLUE, "-"),
        ("append to one session, with a request id", ORANGE, "-"),
        ("append to one session, without a request id", GREEN, "-"),
    )
    stores = _stores(figures)
    figure, panels = _axes(len(stores), sharey=True)
    for axes, store in zip(panels, stores, strict=True):
        for name, color, style in lines:
            found = list(_numbered(figures, rf"^{re.escape(name)}, (\d+) clients?$", "calls/s", store))
            if not found:
                return None
            # The numbers of clients stand apart by the same, whatever they are.
            axes.plot(range(len(found)), [one["value"] for _, one in found], style, color=color, marker="o", label=name)
            axes.set_xticks(range(len(found)), [str(clients) for clients, _ in found])
        _finish(axes, "clients", "calls/s" if axes is panels[0] else "", store)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(stores) > 1 else 1)
    return figure


def _append_lengths(figures: Figures) -> Any:
    figure, (axes,) = _axes(1)
    for store, color in zip(_stores(figures), (BLUE, ORANGE), strict=False):
        found = list(_numbered(figures, r"^append to a session of ([\d,]+) messages", "ms", store))
        if not found:
            return None
        lengths = [length for length, _ in found]
        axes.fill_between(
            lengths, *zip(*(one["spread"] for _, one in found), strict=True), color=color, alpha=0.2, linewidth=0
        )
        axes.plot(lengths, [one["value"] for _, one in found], color=color, marker="o", label=store)
        axes.set_xscale("log")
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.minorticks_off()
    _finish(axes, "messages in the session", "p50 of an append, ms")
    axes.legend(loc="lower left")
    return figure


def _find_parts(figures: Figures) -> Any:
    """The floor is embedding and index, which work side by side at first: what it has more than the embedding alone is
    the index."""
    alone = "embedding alone, ms"
    found = [
        (points, one)
        for points, one in _numbered(figures, r"^find, ([\d,]+) points of the space$", "ms", SQLITE)
        if alone in one.get("notes", {}) and "floor" in one
    ]
    if not found:
        return None
    figure, (axes,) = _axes(1)
    embedding = [one["notes"][alone] for _, one in found]
    floor = [max(one["floor"]["value"], least) for least, (_, one) in zip(embedding, found, strict=True)]
    whole = [max(one["value"], least) for least, (_, one) in zip(floor, found, strict=True)]
    base = [0.0] * len(found)
    for name, color, tops in (
        ("embedding", BLUE, embedding),
        ("index, behind it", ORANGE, floor),
        ("all else", GREEN, whole),
    ):
        heights = [top - below for top, below in zip(tops, base, strict=True)]
        axes.bar(range(len(found)), heights, 0.5, base, color=color, label=name)
        base = tops
    axes.set_xticks(range(len(found)), [f"{points:,}" for points, _ in found])
    _finish(axes, "points in the index, all of the space", "p50 of a search, ms")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _soak_memory(figures: Figures) -> Any:
    """`each` of these is a value for each look."""
    found = [one for one in figures if one["unit"] == "MB" and len(one["each"]) > 1]
    if not found:
        return None
    stores = _stores(found) or [""]
    figure, panels = _axes(len(stores), sharey=True)
    for axes, store in zip(panels, stores, strict=True):
        own = [one for one in found if one["store"] == store]
        for one, color in zip(own, (BLUE, ORANGE, GREEN, GREY), strict=False):
            axes.plot(
                range(1, len(one["each"]) + 1),
                one["each"],
                color=color,
                marker="o",
                label=one["name"].removeprefix("memory of "),
            )
        axes.xaxis.get_major_locator().set_params(integer=True)
        _finish(axes, "look", "MB" if axes is panels[0] else "", store)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(stores) > 1 else 1)
    return figure


_PLOTS: dict[str, tuple[tuple[str, str, Callable[[Figures], Any]], ...]] = {
    "appends": (
        ("appends-by-clients", "Appends a second by clients, beside the bare echo.", _append_rates),
        (
            "appends-by-length",
            "What an append takes by the length of its session, with least and most.",
            _append_lengths,
        ),
    ),
    "search": (("find-by-points", "What a search takes by the points of the space, and what of it.", _find_parts),),
    "soak": (("soak-memory", "Memory of the processes, look by look through the soak.", _soak_memory),),
}
