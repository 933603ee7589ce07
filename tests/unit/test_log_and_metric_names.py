"""Log events and metrics follow the naming rules of `docs/operate/observability.md`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.generate import metrics
from tests.support.server_process import ROOT

LEVELS = {"debug", "info", "warning", "error", "exception"}
EVENT = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
TABLE = ROOT / "docs" / "operate" / "server.md"


def _events(path: Path) -> Iterator[str]:
    """Yields the events that a file logs with structlog."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=level, value=ast.Name(id=logger)), args=[first, *_]) if (
                level in LEVELS and logger in ("_log", "log")
            ):
                yield from (
                    one.value for one in ast.walk(first) if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


def sources() -> Iterator[Path]:
    """Yields the files of the processes that log events."""
    for root in ("server", "storage", "extractor", "schemas"):
        yield from (ROOT / root).rglob("*.py")


def test_events_are_words_joined_by_underscores() -> None:
    found = {event for path in sources() if "structlog" in path.read_text() for event in _events(path)}
    assert len(found) > 150
    assert sorted(event for event in found if not EVENT.fullmatch(event)) == []


def test_events_that_the_page_explains_are_logged() -> None:
    rows = TABLE.read_text().partition("Events worth an alarm")[2].partition("## Limits")[0].splitlines()
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")}
    assert len(named) > 40
    text = "".join(path.read_text() for path in sources())
    assert sorted(name for name in named if f'"{name}"' not in text and f"{name}=" not in text) == []


def test_metrics_name_their_part_and_their_unit() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", metrics.page(), re.MULTILINE)
    assert len(rows) > 50
    units = {"counter": "_total", "histogram": ("_seconds", "_tokens", "_size"), "gauge": ""}
    wrong = [name for name, kind in rows if not name.startswith("runekeep_") or not name.endswith(units[kind])]
    assert wrong == []
