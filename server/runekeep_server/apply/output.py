"""A worker's complete output, and the result for one that cannot be used."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from runekeep_server.apply.secrets import TextReplacer
from runekeep_server.protocol.secret_scan import withhold_all
from runekeep_storage.jobs import jobs
from runekeep_storage.jobs.extraction_records import AttemptRecord
from runekeep_storage.records import LeaseId


@dataclass(frozen=True, slots=True)
class Output:
    """A worker's complete output for one lease. `traceparent`: the trace context that the worker reports for its
    attempt."""

    lease: LeaseId
    output_id: str
    operations: Sequence[pb.MemoryOperation]
    summary: common_pb2.Summary
    usage: list[dict[str, Any]]
    extractor: common_pb2.ExtractorInfo
    dropped_items: int
    made: AttemptRecord
    duplicates: int = 0
    skipped_rules: Mapping[str, int] = field(default_factory=dict)
    secrets_withheld: int = 0
    image_descriptions: Sequence[pb.ImageDescription] = ()
    turn_memories: Sequence[pb.TurnMemory] = ()
    bucket_changes: Sequence[pb.BucketChanges] = ()
    selections: Sequence[turn_pb.TurnSelection] = ()
    feedback: Sequence[turn_pb.Feedback] = ()
    answers: Sequence[pb.Answer] = ()
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Unusable:
    """An output without anything to apply. `left_out`: what the task's result says about it."""

    why: str
    left_out: dict[str, Any]


def without_secrets(output: Output) -> Output:
    """Returns the output with each secret replaced by a note, and their number. Texts about turns are handled when they
    are read."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    _with_texts(output, collect)
    scanned = dict(zip(texts, withhold_all(texts), strict=True))
    secrets = sum(len(scanned[text][1]) for text in texts)
    return replace(_with_texts(output, lambda text: scanned[text][0]), secrets_withheld=secrets) if secrets else output


def _with_texts(output: Output, replace_text: Callable[[str], str]) -> Output:
    replacer = TextReplacer(replace_text)
    return replace(
        output,
        operations=replacer.operations(output.operations),
        summary=replacer.summary(output.summary),
        image_descriptions=replacer.images(output.image_descriptions),
    )


def out_of_place(kind: str, output: Output) -> str:
    """Names the items that a job of this kind must not have; empty if there are none."""
    of_commits = {
        "memory operations": output.operations,
        "a summary of the archive": output.summary.ByteSize(),
        "image descriptions": output.image_descriptions,
    }
    found = [name for name, there in of_commits.items() if there and kind != jobs.COMMIT]
    if output.turn_memories and kind in (jobs.BUCKET_RECONCILE, jobs.ASK):
        found.append("turn memories")
    if output.bucket_changes and kind != jobs.BUCKET_RECONCILE:
        found.append("bucket changes")
    if output.selections and kind != jobs.TURN_FINGERPRINT:
        found.append("a selection")
    if output.feedback and kind != jobs.TURN_FINGERPRINT:
        found.append("feedback")
    if output.answers and kind != jobs.ASK:
        found.append("an answer")
    return f"the output of a {kind} holds {' and '.join(found)}" if found else ""
