"""The long form: `python -m tests.crash [--rounds N] [--stores sqlite postgres] [--seed N]`.

A round is one fault under load. Rounds run in campaigns of their own stores, each with every fault at least once. The
last line on standard output is one JSON object with the figures; exit status 1 when anything was wrong.
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

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

# Before grpc is imported: PostgreSQL's programs and the servers are executed, never just forked.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from tests.crash.campaign import Outcome, campaign, without_watermark
from tests.crash.faults import FAULTS, Fault, faults_on
from tests.crash.fleet import Backing, OnPostgres, OnSqlite
from tests.support.postgres import PostgresServer

CAMPAIGN = 25
"""Rounds of a campaign, about; after as many its stores are checked and made anew."""
OVERLAPPING = 200
"""Searches that must be under way when a commit comes into sight, on each store."""
SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="faults on each store; default: 100")
    parser.add_argument("--stores", nargs="+", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    flags = parser.parse_args()
    if flags.rounds < len(FAULTS):
        parser.error(f"there are {len(FAULTS)} faults, so as many rounds are the least")
    directory = Path(tempfile.mkdtemp(prefix="runekeep-crash-"))
    began = time.monotonic()
    console = Console(stderr=True)
    console.print(f"seed {flags.seed}, logs in {directory}")
    columns = (TextColumn("{task.description:<52}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        figures = {}
        for store in flags.stores:
            bar = progress.add_task(store, total=flags.rounds)

            def done(name: str, bar: TaskID = bar, store: str = store) -> None:
                progress.update(bar, advance=1, description=f"{store}: {name}")

            plan = _plan(store, flags.rounds, flags.seed)
            figures[store] = _on_store(store, plan, directory / store, console, done)
    good = all(figure["passed"] for figure in figures.values())
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"passed": good, "seed": flags.seed, "seconds": seconds, "stores": figures}))
    return 0 if good else 1


def _on_store(
    store: str, plan: list[list[Fault]], directory: Path, console: Console, done: Callable[[str], None]
) -> dict[str, object]:
    """Figures of all campaigns on a store, and whether they are as they must be."""
    server = PostgresServer().start() if store == "postgres" else None
    sum_, failure, blind = Outcome(), "", (0, 0)

    def backing(name: str) -> tuple[Backing, Path]:
        place = directory / name
        place.mkdir(parents=True)
        return (OnSqlite() if server is None else OnPostgres(server, place)), place

    try:
        for number, faults in enumerate(plan):
            wanted = -(-OVERLAPPING // len(plan))
            sum_.add(asyncio.run(campaign(*backing(f"{number}"), faults, wanted_overlaps=wanted, done=done)))
        blind = asyncio.run(without_watermark(*backing("blind")))
    except (AssertionError, ExceptionGroup) as error:
        failure = f"{type(error).__name__}: {error}"
        console.print_exception()
    finally:
        if server is not None:
            server.stop()
    for violation in sum_.violations[:SHOWN]:
        console.print(str(violation))
    passed = not failure and not sum_.violations and sum_.overlapping >= OVERLAPPING and blind[1] > 0
    blindness = {"searches": blind[0], "half_seen": blind[1]}
    failed = {"failure": failure} if failure else {}
    return {"passed": passed, **failed, **sum_.as_json(), "without_watermark": blindness}


def _plan(store: str, rounds: int, seed: int) -> list[list[Fault]]:
    """Faults of each campaign, in an order that the seed decides: all of them, and some once more."""
    chance = random.Random(f"{seed} {store}")
    every = faults_on(store)
    count = max(1, rounds // CAMPAIGN)
    sizes = [rounds // count + (number < rounds % count) for number in range(count)]
    drawn = [[*every, *chance.choices(every, k=size - len(every))] for size in sizes]
    return [chance.sample(faults, len(faults)) for faults in drawn]


if __name__ == "__main__":
    sys.exit(main())
