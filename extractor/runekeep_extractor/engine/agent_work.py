"""Detects whether a batch shows an agent at work. Only then does the engine extract execution memories: plain chat does
not teach how to do a task.
"""

import re
from collections.abc import Sequence
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2, turn_memory_service_pb2

_CODE: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.M)
_STEP: Final = re.compile(r"^[ \t]*\d{1,3}[.)][ \t]+\S", re.M)
_MIN_STEPS: Final = 3


def shows_work(
    messages: Sequence[common_pb2.Message],
    usage: extractor_service_pb2.UsageChunk,
    turns: Sequence[turn_memory_service_pb2.CandidateTurn],
) -> bool:
    """Returns whether the batch has a tool call, a used skill, or a task. A task is a turn whose summary names
    something done, left open or delivered, or an answer of the agent with code or numbered steps.
    """
    if usage.skills or any(_is_task(one.turn.summary) for one in turns):
        return True
    return any(_is_work(message.role, part) for message in messages for part in message.parts)


def _is_task(summary: turn_memory_service_pb2.TurnSummary) -> bool:
    return bool(summary.done or summary.not_done or summary.delivered_to_user)


def _is_work(role: common_pb2.Role.ValueType, part: common_pb2.Part) -> bool:
    if part.HasField("tool"):
        return True
    if role != common_pb2.ROLE_ASSISTANT or not part.HasField("text"):
        return False
    text = part.text.text
    return _CODE.search(text) is not None or len(_STEP.findall(text)) >= _MIN_STEPS
