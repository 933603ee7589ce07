"""What is kept of a call: enough to tell later what was asked and what came of it. It goes with the job, to no log."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from runekeep.v1 import common_pb2

TIMED_OUT: Final = "timeout"
"""Stands where an answer tells why it stopped, of a call that got none in time."""


def canonical(request: Mapping[str, Any]) -> bytes:
    """A request as JSON, equal for equal requests. The key is no part of it: it goes in a header."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", errors="replace")


def model_call(
    phase: str, model: str, written: bytes, content: list[Any], text: str, stop_reason: str
) -> common_pb2.ModelCall:
    """One call. `written`: its request, by `canonical`. The answer is its text, or where tools are called all of its
    content as JSON."""
    calls_tools = any(isinstance(block, Mapping) and block.get("type") == "tool_use" for block in content)
    answer = json.dumps(content, ensure_ascii=False) if calls_tools else text
    return common_pb2.ModelCall(
        phase=phase,
        model=model[:256],
        prompt_digest=hashlib.sha256(written).hexdigest(),
        answer=answer.encode("utf-8", errors="replace").decode(),
        stop_reason=stop_reason[:64],
    )
