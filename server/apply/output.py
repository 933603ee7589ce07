"""An output of a worker as the rules of applying see it, and the end of one that cannot be used."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from server.apply.secrets import TextReplacer
from server.secret_scan import withhold_all
from storage import jobs
from storage.extraction_records import Made
from storage.records import LeaseId


@dataclass(frozen=True, slots=True)
class Output:
    """What a worker sent for one lease, whole. `traceparent`: where it says that its attempt stands in a trace."""

    lease: LeaseId
    output_id: str
    operations: Sequence[pb.MemoryOperation]
    summary: common_pb2.Summary
    usage: list[dict[str, Any]]
    extractor: common_pb2.ExtractorInfo
    dropped_items: int
    made: Made
    duplicates: int = 0
    skipped_rules: Mapping[str, int] = field(default_factory=dict)
    secrets_withheld: int = 0
    image_descriptions: Sequence[pb.ImageDescription] = ()
    turn_memories: Sequence[pb.TurnMemory] = ()
    bucket_changes: Sequence[pb.BucketChanges] = ()
    selections: Sequence[turn_pb.TurnSelection] = ()
    feedback: Sequence[turn_pb.Feedback] = ()
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Unusable:
    """An output of which nothing is worth keeping. `left_out`: what the task's result tells of it."""

    why: str
    left_out: dict[str, Any]


def without_secrets(output: Output) -> Output:
    """The output with a note in place of each secret, counted; what it says of turns is seen to when it is read."""
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
    """Names the items that no job of that kind has; empty when there are none."""
    of_commits = {
        "memory operations": output.operations,
        "a summary of the archive": output.summary.ByteSize(),
        "image descriptions": output.image_descriptions,
    }
    found = [name for name, there in of_commits.items() if there and kind != jobs.COMMIT]
    if output.turn_memories and kind == jobs.BUCKET_RECONCILE:
        found.append("turn memories")
    if output.bucket_changes and kind != jobs.BUCKET_RECONCILE:
        found.append("bucket changes")
    if output.selections and kind != jobs.TURN_FINGERPRINT:
        found.append("a selection")
    if output.feedback and kind != jobs.TURN_FINGERPRINT:
        found.append("feedback")
    return f"the output of a {kind} holds {' and '.join(found)}" if found else ""
