"""Converts records of extraction attempts, and token usage."""

import json
from collections.abc import Sequence
from typing import Any

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep_server.protocol.pagination import fitting
from runekeep_server.wire.basics import extractor_info, timestamp
from runekeep_server.wire.tasks import failure
from runekeep_storage.jobs.extraction_records import Record, unpack
from runekeep_storage.jobs.spending import COUNTERS, added

_CALL_FIELDS = ("phase", "model", "prompt_digest", "answer", "stop_reason")


def call_json(call: common_pb2.ModelCall, *, answer: bool) -> dict[str, str]:
    """Returns a model call in its stored form, with or without the model's answer."""
    kept = {name: str(getattr(call, name)) for name in _CALL_FIELDS}
    return kept if answer else {**kept, "answer": ""}


def attempt(record: Record) -> task_service_pb2.ExtractionAttempt:
    """Returns the wire form of a record. Unpacking long answers takes time."""
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
    """Returns the sums of entries, at least 0 whatever workers took back. Entries that do not fit into `most_bytes` are
    added up in one without phase and model."""
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
