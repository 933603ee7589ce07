"""Records of extraction attempts, and what models cost."""

import json
from collections.abc import Sequence
from typing import Any

from runekeep.v1 import common_pb2, task_service_pb2
from schemas.token_usage import COUNTERS, added
from server.pages import fitting
from server.wire.basics import extractor_info, timestamp
from server.wire.tasks import failure
from storage.extraction_records import Record, unpack

_CALL_FIELDS = ("phase", "model", "prompt_digest", "answer", "stop_reason")


def call_json(call: common_pb2.ModelCall, *, answer: bool) -> dict[str, str]:
    """A call as it is kept, with or without what the model answered."""
    kept = {name: str(getattr(call, name)) for name in _CALL_FIELDS}
    return kept if answer else {**kept, "answer": ""}


def attempt(record: Record) -> task_service_pb2.ExtractionAttempt:
    """Unpacks the answers, which takes time where they are long."""
    wire = task_service_pb2.ExtractionAttempt(
        number=record.number,
        end_time=timestamp(record.ended_at),
        extractor=extractor_info(record.extractor),
        base_revision=record.base_revision,
        type_digests=json.loads(record.type_digests),
        calls=[common_pb2.ModelCall(**call) for call in unpack(record.calls)],
    )
    if record.failure:
        wire.failure.CopyFrom(failure(json.loads(record.failure)))
    return wire


def usage(entries: Sequence[dict[str, Any]], most_bytes: int) -> list[common_pb2.TokenUsage]:
    """Sums of entries, which are never less than nothing, whatever workers took back. Those that have no room in
    `most_bytes` are added up in one without phase and model."""
    rows = [
        common_pb2.TokenUsage(
            phase=entry["phase"], model=entry["model"], **{name: max(entry[name], 0) for name in COUNTERS}
        )
        for entry in entries
    ]
    shown = fitting(rows, most_bytes)
    if shown == len(rows):
        return rows
    nameless = ({"phase": "", "model": "", **{name: getattr(row, name) for name in COUNTERS}} for row in rows[shown:])
    return [*rows[:shown], *(common_pb2.TokenUsage(**one) for one in added(nameless))]
