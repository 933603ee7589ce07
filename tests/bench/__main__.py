"""Everything that is measured, in one run; five repetitions of all parts take three quarters of an hour on a quiet
machine with two cores.

    python -m tests.bench [--parts appends commits] [--stores sqlite postgres] [--repeats 5] [--soak 10] [--json]

writes report.json, report.md and plots into docs/bench, or to --out. Parts that are not measured keep the figures of
the run that they are of. The soak is measured when it is asked for, alone or with --parts.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import Progress

from tests.bench import plots, report
from tests.bench.figures import POSTGRES, SQLITE
from tests.bench.parts import ORDER, SOAK
from tests.bench.setting import Setting, setting

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "bench"
REPEATS = 5
STORES = {"sqlite": SQLITE, "postgres": POSTGRES}
PACKAGES = ("grpcio", "protobuf", "onnxruntime", "qdrant-edge-py")


def run(part: str, given: Setting) -> dict[str, Any]:
    """A section."""
    module = importlib.import_module(f"tests.bench.parts.{part}")
    before, began = os.getloadavg()[0], time.monotonic()
    figures = asyncio.run(module.measure(given))
    seconds, behind = time.monotonic() - began, os.getloadavg()[0]
    commit, changed = _commit()
    made = report.Run(
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        commit=commit,
        changed=changed,
        seconds=report.short(seconds),
        load=(round(before, 2), round(behind, 2)),
        processors=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        # A soak is one, and long.
        repeats=1 if part == SOAK else given.repeats,
        stores=given.stores,
        versions=_versions(given),
    )
    return report.section(module, made, figures)


def _commit() -> tuple[str, bool]:
    """Of the tree, and whether it differs otherwise than by the report."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        return ran.stdout.strip()

    return git("rev-parse", "--short", "HEAD") or "unknown", bool(
        git("status", "--porcelain", "--", ".", ":!docs/bench")
    )


def _versions(given: Setting) -> dict[str, str]:
    versions = {"Python": sys.version.partition(" ")[0], **{name: version(name) for name in PACKAGES}}
    if SQLITE in given.stores:
        versions["SQLite"] = sqlite3.sqlite_version
    if given.postgres is not None:
        versions["PostgreSQL"] = given.postgres.sql("SHOW server_version").partition(" ")[0]
    return versions


def write(sections: list[dict[str, Any]], out: Path) -> dict[str, Any]:
    """The report with these sections in it, and the files of it."""
    file = out / "report.json"
    made = report.merged(json.loads(file.read_text()) if file.exists() else {}, sections, ORDER)
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    (out / "report.md").write_text(report.page(made, plots.draw(made, out), ORDER))
    return made


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: everything that was started goes with it."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=ORDER)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--quick", action="store_true", help="to try the harness: so few calls that they say nothing")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true", help="print the JSON in place of the page")
    options = parser.parse_args()
    if options.quick and options.out is None:
        parser.error("figures of --quick say nothing: give --out")
    if options.repeats < 1:
        parser.error("--repeats: at least 1")
    parts = [part for part in ORDER if part in (options.parts or ORDER) and part != SOAK]
    if options.soak > 0:
        parts.append(SOAK)
    elif SOAK in (options.parts or ()):
        parser.error("give --soak how many minutes")
    stores = [STORES[name] for name in dict.fromkeys(options.stores)]
    out = options.out or OUT
    with (
        ended_by_signals(),
        Progress(console=Console(stderr=True), transient=True) as progress,
        setting(stores, options.repeats, progress, quick=options.quick, soak=options.soak) as given,
    ):
        bar = progress.add_task("parts", total=len(parts))
        for part in parts:
            progress.update(bar, description=f"part {part}")
            # At once: what was measured stays, whatever becomes of the next.
            made = write([run(part, given)], out)
            progress.advance(bar)
    print(json.dumps(made, ensure_ascii=False) if options.json else (out / "report.md").read_text())


if __name__ == "__main__":
    main()
