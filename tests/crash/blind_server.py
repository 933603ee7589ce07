"""A server without the watermark, to show that the checker is not blind: `python -m tests.crash.blind_server`.

Searches join what the index found with the newest rows and drop what is stale, as one would do who had not thought of
half a commit. Everything else is the server itself, and this is the only place where the difference exists.
"""

import sys
from typing import Any

from server.__main__ import main
from storage import find, memories

_JOIN = find._join


async def _join_what_is_there_now(tx: Any, space: Any, request: Any, ranked: Any, revision: int, start: Any) -> Any:
    return await _JOIN(tx, space, request, ranked, memories.LATEST, start)


if __name__ == "__main__":
    find._join = _join_what_is_there_now
    sys.exit(main())
