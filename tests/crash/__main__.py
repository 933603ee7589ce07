"""Runs the long form of the crash tests: `python -m tests.crash [--hours H] [--store sqlite postgres] [--seed N]`.

On each store two campaigns run in turn, in cycles until the time is over. The first breaks servers with shortened times
at failpoints. The second breaks what `runekeep up` started with default settings, by kills, outages, full disks, clock
changes, stopped processes and damaged files. The seed decides which faults strike, in which order, and everything
random about them. The last line on standard output is one JSON object with the figures. The exit status is 1 if
anything was wrong.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

# Before grpc is imported: PostgreSQL's programs and the servers are executed, never just forked.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from tests.crash.campaign import Outcome, campaign, without_watermark
from tests.crash.faults import Fault, faults_on
from tests.crash.fleet import Backing, OnPostgres, OnSqlite
from tests.crash.system_campaign import left_out, plan, system_campaign
from tests.crash.system_faults import SystemFault
from tests.support.postgres import PostgresServer

STORES = ("sqlite", "postgres")
OVERLAPPING = 200
"""Least number of searches, in each cycle on each store, that must be answered while a commit is not visible yet."""
MIN_SECONDS = 30.0
"""A cycle does not start with less time than this."""
SHOWN = 20


class Run:
    """Runs all campaigns on one store. `server`: PostgreSQL's; None for SQLite."""

    def __init__(self, store: str, flags: argparse.Namespace, directory: Path, console: Console) -> None:
        self.store = store
        self.flags = flags
        self.failpoints = Outcome()
        self.system = Outcome()
        self.blind = (0, 0)
        self.cycles = 0
        self.failures: list[str] = []
        self._directory = directory
        self._console = console
        self._server: PostgresServer | None = None

    def run(self, progress: Progress) -> None:
        """Runs cycles until the time is over, at least one."""
        self._server = PostgresServer().start() if self.store == "postgres" else None
        until = time.monotonic() + (self.flags.hours or 0.0) * 3600 / len(self.flags.store)
        try:
            while not self.cycles or (self.flags.hours and time.monotonic() < until - MIN_SECONDS):
                self._cycle(
                    f"{self.flags.seed} {self.store} {self.cycles}", until if self.flags.hours else 0.0, progress
                )
                self.cycles += 1
                if self.failures:
                    return
        finally:
            if self._server is not None:
                self._server.stop()

    def figures(self) -> dict[str, Any]:
        violations = [*self.failpoints.violations, *self.system.violations]
        for violation in violations[:SHOWN]:
            self._console.print(str(violation))
        enough = self.flags.system_only or (
            self.failpoints.overlapping >= OVERLAPPING * self.cycles and self.blind[1] > 0
        )
        return {
            "passed": not self.failures and not violations and enough,
            **({"failures": self.failures} if self.failures else {}),
            "cycles": self.cycles,
            "failpoints": self.failpoints.as_json(),
            "system": self.system.as_json(),
            "left_out": left_out(self.store),
            "without_watermark": {"searches": self.blind[0], "half_seen": self.blind[1]},
        }

    def _cycle(self, seed: str, until: float, progress: Progress) -> None:
        system_faults = plan(self.store, seed, short=self.flags.short, needs_root=self.flags.needs_root)
        server_faults = [] if self.flags.system_only else shuffled(faults_on(self.store), seed)
        bar = progress.add_task(self.store, total=len(system_faults) + len(server_faults))
        place = self._directory / f"{self.store}-{self.cycles}"
        try:
            if server_faults:
                self._with_failpoints(server_faults, seed, place, self._reporter(progress, bar))
            self._with_system(system_faults, seed, place, until, self._reporter(progress, bar))
        except (AssertionError, ExceptionGroup, OSError) as error:
            self.failures.append(f"{type(error).__name__}: {str(error)[:2000]}")
            self._console.print_exception()

    def _with_failpoints(self, faults: list[Fault], seed: str, place: Path, done: Callable[[str, str], None]) -> None:
        def backing(name: str) -> tuple[Backing, Path]:
            directory = place / name
            directory.mkdir(parents=True)
            return (OnSqlite() if self._server is None else OnPostgres(self._server, directory)), directory

        self.failpoints.add(
            asyncio.run(
                campaign(
                    *backing("failpoints"),
                    faults,
                    seed=seed,
                    wanted_overlaps=OVERLAPPING,
                    done=lambda name: done(name, ""),
                )
            )
        )
        if not self.cycles:
            self.blind = asyncio.run(without_watermark(*backing("blind")))

    def _with_system(
        self, faults: list[SystemFault], seed: str, place: Path, until: float, done: Callable[[str, str], None]
    ) -> None:
        self.system.add(
            asyncio.run(system_campaign(place / "system", self._server, faults, seed=seed, until=until, done=done))
        )

    def _reporter(self, progress: Progress, bar: TaskID) -> Callable[[str, str], None]:
        def done(name: str, evidence: str) -> None:
            progress.update(bar, advance=1, description=f"{self.store}: {name}")
            if evidence:
                self._console.print(f"{self.store}: {name}: {evidence}", highlight=False, soft_wrap=True)

        return done


def shuffled(faults: list[Fault], seed: str) -> list[Fault]:
    """Returns all faults at failpoints, in an order that the seed decides."""
    return random.Random(f"{seed} failpoints").sample(faults, len(faults))


def main() -> int:
    flags = _flags()
    directory = Path(tempfile.mkdtemp(prefix="runekeep-crash-"))
    began = time.monotonic()
    console = Console(stderr=True)
    console.print(f"seed {flags.seed}, logs in {directory}")
    columns = (TextColumn("{task.description:<52}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    runs = [Run(store, flags, directory, console) for store in flags.store]
    with Progress(*columns, console=console) as progress:
        for run in runs:
            run.run(progress)
    figures = {run.store: run.figures() for run in runs}
    good = all(figure["passed"] for figure in figures.values())
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"passed": good, "seed": flags.seed, "seconds": seconds, "stores": figures}))
    return 0 if good else 1


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0, help="how long, on all stores; default: one cycle on each")
    parser.add_argument("--store", nargs="+", choices=STORES, default=list(STORES), help="default: both")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--short", action="store_true", help="only faults that take seconds")
    parser.add_argument(
        "--needs-root",
        action="store_true",
        help="only faults that need root or Debian's package faketime, and fail where these are not there",
    )
    flags = parser.parse_args()
    flags.system_only = flags.short or flags.needs_root
    missing = {name: what for store in flags.store for name, what in left_out(store).items()}
    if flags.needs_root and missing:
        parser.error(f"this machine lacks {missing}")
    return flags


if __name__ == "__main__":
    sys.exit(main())
