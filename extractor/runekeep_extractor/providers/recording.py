"""Records calls: enough to tell later what was asked and what was answered. Records go with the job, never to a log."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from runekeep.v1 import common_pb2

TIMED_OUT: Final = "timeout"
"""Stop reason of a call that got no answer in time."""
BROKEN_OFF: Final = "broken_off"
"""Stop reason of a call whose answer began and did not end."""


def canonical(request: Mapping[str, Any]) -> bytes:
    """Returns a request as JSON, equal for equal requests. The API key is not part of it, because it is sent in a
    header.
    """
    text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", errors="replace")


def model_call(phase: str, model: str, written: bytes, answer: str, stop_reason: str) -> common_pb2.ModelCall:
    """Returns the record of one call. `written`: its request, from `canonical`."""
    return common_pb2.ModelCall(
        phase=phase,
        model=model[:256],
        prompt_digest=hashlib.sha256(written).hexdigest(),
        answer=answer.encode("utf-8", errors="replace").decode(),
        stop_reason=stop_reason[:64],
    )
