"""Builds the record of an attempt from what its worker reports."""

import asyncio
import json
from collections.abc import Sequence

from runekeep.v1 import common_pb2
from runekeep_schemas.memory_types.digest import type_digests
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.wire.basics import extractor_json
from runekeep_server.wire.extractions import call_json
from runekeep_storage.jobs.extraction_records import AttemptRecord, pack

MAX_ANSWERS_BYTES = 2 * 1024 * 1024
"""Maximum bytes of the answers of one attempt, as in the contract: the records of a task must fit into one response."""


class AttemptRecorder:
    """One per server. `answers`: whether raw answers of models are recorded."""

    def __init__(self, registry: Registry, *, answers: bool) -> None:
        self._digests = type_digests([*registry, SESSION_SKILLS])
        self._answers = answers

    async def build_record(
        self, extractor: common_pb2.ExtractorInfo, calls: Sequence[common_pb2.ModelCall] = ()
    ) -> AttemptRecord:
        """Returns the record of an attempt. `calls`: in order. Answers above the limit are cut, the oldest first."""
        trimmed = _trim_answers([call_json(call, answer=self._answers) for call in calls])
        packed = await asyncio.to_thread(pack, trimmed)
        return AttemptRecord(json.dumps(extractor_json(extractor)), packed, self._digests)


def _trim_answers(calls: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    kept: list[dict[str, str]] = []
    room = MAX_ANSWERS_BYTES
    for call in reversed(calls):
        answer = call["answer"].encode()[:room]
        room -= len(answer)
        # Drops a character that the cut splits.
        kept.append({**call, "answer": answer.decode(errors="ignore")})
    return kept[::-1]
