"""Sends malformed and hostile requests to every method of real servers, streams included, and fails when one is
answered INTERNAL or UNKNOWN, when a server or its index breaks, when another user is kept waiting, or when less than
a third passes validation.

The last line is one JSON object.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.modes import MODES
from tests.fuzz.report import Report
from tests.support.server_process import ServerProcess

MIN_SHARE = 1 / 3


async def fuzz(mode: str, seed: str, requests: int, folder: Path) -> Report:
    """One campaign in an identity mode, on a server of its own in `folder`."""
    report = Report()
    server = ServerProcess(folder / "data", MODES[mode].settings).start()
    try:
        campaign = Campaign(server, await MODES[mode].identities(server.address), seed, report)
        await campaign.run(requests)
        server.terminate()
        try:
            server.ended()
        except AssertionError as error:
            report.fault(f"the server ended badly: {error}")
    finally:
        server.discard()
    if report.share < MIN_SHARE:
        report.fault(f"of all requests {report.share:.1%} pass validation, which is less than a third")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="in each mode")
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--mode", choices=sorted(MODES), action="append", help="development and keys, unless one is named"
    )
    given = parser.parse_args()
    bad = 0
    for mode in given.mode or sorted(MODES):
        folder = Path(tempfile.mkdtemp(prefix="runekeep-fuzz-"))
        report = asyncio.run(fuzz(mode, given.seed, given.requests, folder))
        if report.faults:
            print(f"the server's data and log are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
        print(f"identity mode {mode}, seed {given.seed}\n{report.table()}\n")
        for fault in report.faults:
            print(f"FAULT {fault}\n", file=sys.stderr)
        bad += len(report.faults)
        print(report.line(mode=mode, seed=given.seed), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
