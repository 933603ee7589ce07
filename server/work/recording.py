"""What is recorded of an attempt, from what its worker tells."""

import asyncio
import json
from collections.abc import Sequence

from runekeep.v1 import common_pb2
from schemas.registry import Registry
from schemas.session_skills import SESSION_SKILLS
from schemas.type_digest import type_digests
from server.wire.basics import extractor_json
from server.wire.extractions import call_json
from storage.extraction_records import Made, pack

ANSWERS_BYTES = 2 * 1024 * 1024
"""Of the answers of one attempt, as the contract says: the records of a task are to fit one response."""


class Recorder:
    """One a server. `answers`: whether raw answers of models are kept."""

    def __init__(self, registry: Registry, *, answers: bool) -> None:
        self._digests = type_digests([*registry, SESSION_SKILLS])
        self._answers = answers

    async def made(self, extractor: common_pb2.ExtractorInfo, calls: Sequence[common_pb2.ModelCall] = ()) -> Made:
        """`calls` in order; what is too long of their answers is cut, of the oldest first."""
        told = _cut([call_json(call, answer=self._answers) for call in calls])
        packed = await asyncio.to_thread(pack, told)
        return Made(json.dumps(extractor_json(extractor)), packed, self._digests)


def _cut(calls: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    kept: list[dict[str, str]] = []
    room = ANSWERS_BYTES
    for call in reversed(calls):
        answer = call["answer"].encode()[:room]
        room -= len(answer)
        # A character that the end goes through is left out.
        kept.append({**call, "answer": answer.decode(errors="ignore")})
    return kept[::-1]
