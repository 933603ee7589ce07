"""A server without one of its guards, to show that the checker is not blind: `python -m tests.crash.blind_server`.

CRASH_WITHOUT names the guard. Everything else is the server itself, and this is the only place where the difference
exists.
"""

import os
import sys
from typing import Any

from server.__main__ import main
from storage import blobs, find, memories

_JOIN = find._join


async def _join_what_is_there_now(tx: Any, space: Any, request: Any, ranked: Any, revision: int, start: Any) -> Any:
    return await _JOIN(tx, space, request, ranked, memories.LATEST, start)


def remove_watermark() -> None:
    """Searches join what the index found with the newest rows and drop what is stale, as one would do who had not
    thought of half a commit."""
    find._join = _join_what_is_there_now


def remove_digest() -> None:
    """Blobs are served as they are read."""
    blobs.verified = lambda name, data: data


REMOVALS = {"watermark": remove_watermark, "digest": remove_digest}

if __name__ == "__main__":
    REMOVALS[os.environ["CRASH_WITHOUT"]]()
    sys.exit(main())
