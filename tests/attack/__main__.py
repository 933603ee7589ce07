"""Attacks real servers: `python -m tests.attack [--store sqlite postgres] [--mode keys mesh] [--attacks NAME ...]`.

In each identity mode and on each store a server is attacked in every way of the list, while a probe of another account
makes ordinary calls. A row says what an attack cost the attacker, in bytes on the wire, and the others, in memory and
delay. The exit status is 1 when data crossed an account, a call of the probe failed, memory grew beyond its bound, or
the probe's p99 was more than three times the quiet one of the same run. Measure on a machine that does nothing else.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor

# Before grpc is imported: PostgreSQL's programs and the servers are executed, never just forked.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from tests.attack.campaign import ATTACKS, run
from tests.attack.report import Report

MODES = ("keys", "mesh")
STORES = ("sqlite", "postgres")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--store", nargs="+", choices=STORES, default=list(STORES), help="default: both")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), help="default: both")
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), help="default: all")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(1_000_000)))
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output in place of tables")
    flags = parser.parse_args()
    reports: list[Report] = []
    failed: list[str] = []
    for store in flags.store:
        for mode in flags.mode:
            # A process of its own, since it gives up its place on the processor for good.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                try:
                    reports.append(process.submit(run, mode, store, flags.attacks, flags.seed).result())
                except Exception as error:
                    failed.append(f"{mode} on {store}: {error!r}"[:2000])
                    traceback.print_exc()
                else:
                    print(reports[-1].table(), end="\n\n", file=sys.stderr if flags.json else sys.stdout, flush=True)
    passed = not failed and all(report.passed for report in reports)
    if flags.json:
        print(json.dumps({"passed": passed, "failed": failed, "runs": [report.as_json() for report in reports]}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
