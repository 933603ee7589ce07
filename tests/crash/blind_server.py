"""Runs a server without one of its guards, to show that the checker notices: `python -m tests.crash.blind_server`.

CRASH_WITHOUT names the guard. Everything else is the normal server, and the difference exists only in this file.
"""

import os
import sys
from typing import Any

from runekeep_server.__main__ import main
from runekeep_storage.blobs import blobs
from runekeep_storage.memories import memories
from runekeep_storage.search import joining

_JOIN = joining.join


async def _join_what_is_there_now(tx: Any, space: Any, request: Any, ranked: Any, revision: int, start: Any) -> Any:
    return await _JOIN(tx, space, request, ranked, memories.LATEST, start)


def remove_watermark() -> None:
    """Makes searches join the index's results with the newest rows and drop stale ones, as a naive implementation would
    that ignores half commits."""
    joining.join = _join_what_is_there_now


def remove_digest() -> None:
    """Serves blobs without verifying them."""
    blobs.verified = lambda damaged, space, name, data: data


REMOVALS = {"watermark": remove_watermark, "digest": remove_digest}

if __name__ == "__main__":
    REMOVALS[os.environ["CRASH_WITHOUT"]]()
    sys.exit(main())
