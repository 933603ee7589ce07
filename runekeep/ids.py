"""Ids that begin with the time: UUID version 7 (RFC 9562, 5.7)."""

import os
from collections import deque
from os import urandom
from time import time_ns
from typing import Final

_VERSION: Final = 7 << 76
_VARIANT: Final = 2 << 62
_DRAWN: Final = 2**80 - 1 - (15 << 76) - (3 << 62)
"""The bits that are neither version nor variant: 74."""
_BYTES: Final = 10
_AT_ONCE: Final = 64
"""Ids for which the system is asked at once: a call of the system takes longer than all else here."""
_random: deque[bytes] = deque()
"""Random bytes for the next ids, an item for each. A child process must not have those of its parent."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.clear)


def new_uuid() -> str:
    """Unique, not secret. What is made at about the same time lies together in an index, so that keeping one more does
    not write pages of its own: of a request id on SQLite a third of the bytes that one drawn by lot does.

    The system draws them: `random` is the program's own, and programs that seed it alike would draw the same ids.
    """
    drawn = int.from_bytes(_next_random()) & _DRAWN
    number = (time_ns() // 1_000_000 % 2**48) << 80 | _VERSION | _VARIANT | drawn
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _next_random() -> bytes:
    while True:
        try:
            # One step, so that no two threads get the same item.
            return _random.popleft()
        except IndexError:
            drawn = urandom(_BYTES * _AT_ONCE)
            _random.extend(drawn[at : at + _BYTES] for at in range(0, len(drawn), _BYTES))
