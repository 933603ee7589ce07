"""Converts sessions, policies, archives and diffs."""

import json
from typing import Any

from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import common_pb2, session_service_pb2
from runekeep_schemas.auto_commit_rules import AutoCommit, AutoCommitError
from runekeep_schemas.documents.uris import archive_uri, session_uri
from runekeep_schemas.policy import MemoryPolicy
from runekeep_server.protocol.errors import invalid
from runekeep_server.wire.basics import REVIEWS, extractor_info, timestamp
from runekeep_storage.records import Archive, Session
from runekeep_storage.sessions.appends import AppendResult
from runekeep_storage.sessions.commits import Commit

_ARCHIVE_STATES = {
    "pending": session_service_pb2.ARCHIVE_STATE_PENDING,
    "done": session_service_pb2.ARCHIVE_STATE_DONE,
    "failed": session_service_pb2.ARCHIVE_STATE_FAILED,
}
_REVIEWS_BY_NUMBER = {number: review for review, number in REVIEWS.items()}
_UPDATABLE = ("title", "memory_policy", "auto_commit")


def policy_from_wire(policy: common_pb2.MemoryPolicy) -> MemoryPolicy:
    """Returns the policy. Absent fields take their defaults."""
    return MemoryPolicy(
        self_enabled=policy.self.enabled if policy.HasField("self") else True,
        peer_enabled=policy.peer.enabled if policy.HasField("peer") else False,
        memory_types=tuple(policy.memory_types.names) if policy.HasField("memory_types") else None,
        session_skills_enabled=policy.session_skills.enabled if policy.HasField("session_skills") else None,
        review=_REVIEWS_BY_NUMBER[policy.review],
    )


def policy_to_wire(policy: MemoryPolicy) -> common_pb2.MemoryPolicy:
    wire = common_pb2.MemoryPolicy(
        peer=common_pb2.TargetPolicy(enabled=policy.peer_enabled), review=REVIEWS[policy.review]
    )
    # `self` cannot be a keyword argument of a generated constructor.
    wire.self.enabled = policy.self_enabled
    wire.self.SetInParent()
    if policy.memory_types is not None:
        wire.memory_types.names.extend(policy.memory_types)
        wire.memory_types.SetInParent()
    if policy.session_skills_enabled is not None:
        wire.session_skills.enabled = policy.session_skills_enabled
        wire.session_skills.SetInParent()
    return wire


def auto_commit_from_wire(rules: session_service_pb2.AutoCommit) -> AutoCommit:
    """Returns the rules. Absent ones do not apply. Raises ApiError for rules that cannot be followed."""
    try:
        return AutoCommit(
            pending_tokens=rules.pending_tokens,
            message_count=rules.message_count,
            idle=_microseconds("auto_commit.idle", rules.idle),
            keep_recent_count=rules.keep_recent_count,
        )
    except AutoCommitError as error:
        raise invalid(f"auto_commit.{error.field}", error.reason, error.todo) from error


def _microseconds(field: str, duration: Duration) -> int:
    """Returns microseconds, rounded down, but at least 1 for a positive duration: 0 would mean that the rule does not
    apply."""
    if not (duration.seconds >= 0 and 0 <= duration.nanos < 1_000_000_000):
        raise invalid(field, "is no valid duration", "Leave it out when it is to play no part")
    return duration.seconds * 1_000_000 + (duration.nanos // 1000 or min(duration.nanos, 1))


def auto_commit_to_wire(rules: AutoCommit) -> session_service_pb2.AutoCommit:
    wire = session_service_pb2.AutoCommit(
        pending_tokens=rules.pending_tokens,
        message_count=rules.message_count,
        keep_recent_count=rules.keep_recent_count,
    )
    if rules.idle:
        wire.idle.FromMicroseconds(rules.idle)
    return wire


def updated_fields(request: session_service_pb2.UpdateSessionRequest) -> set[str]:
    """Returns the fields in the mask. Raises ApiError for an empty mask, and for fields that cannot be changed."""
    paths = list(request.update_mask.paths)
    todo = f"Name any of {', '.join(_UPDATABLE)}"
    if not paths:
        raise invalid("update_mask", "names no field", todo)
    for number, path in enumerate(paths):
        if path not in _UPDATABLE:
            raise invalid(f"update_mask.paths[{number}]", "names what cannot be changed", todo)
    return set(paths)


def session(user: str, record: Session) -> session_service_pb2.Session:
    return session_service_pb2.Session(
        uri=session_uri(user, record.session_id),
        session_id=record.session_id,
        title=record.title,
        memory_policy=policy_to_wire(MemoryPolicy.from_json(json.loads(record.policy))),
        compression_index=record.compression_index,
        live_message_count=record.live_count,
        message_count=record.last_sequence,
        summary=common_pb2.Summary(abstract=record.abstract, overview=record.overview),
        create_time=timestamp(record.created_at),
        update_time=timestamp(record.updated_at),
        auto_commit=auto_commit_to_wire(AutoCommit.from_json(record.auto_commit)) if record.auto_commit else None,
        live_tokens=record.live_tokens,
    )


def archive(user: str, record: Archive) -> session_service_pb2.Archive:
    return session_service_pb2.Archive(
        uri=archive_uri(user, record.session_id, record.index),
        index=record.index,
        messages=common_pb2.MessageRange(start_sequence=record.first_sequence, end_sequence=record.last_sequence),
        state=_ARCHIVE_STATES[record.state],
        summary=common_pb2.Summary(abstract=record.abstract, overview=record.overview),
        task_id=record.task_id,
        revision=record.revision,
        create_time=timestamp(record.created_at),
        done_time=timestamp(record.done_at),
    )


def diff_document(user: str, record: Archive) -> dict[str, Any]:
    """Returns `memory_diff.json` of a finished archive."""
    stored = json.loads(record.diff)
    done = timestamp(record.done_at)
    changes = stored["operations"]
    return {
        "archive_uri": archive_uri(user, record.session_id, record.index),
        "extracted_at": done.ToJsonString() if done else "",
        "extractor": stored["extractor"],
        "revision": record.revision,
        "operations": changes,
        "summary": {f"total_{kind}": len(changes[kind]) for kind in ("adds", "updates", "deletes")},
    }


def memory_diff(user: str, record: Archive) -> session_service_pb2.MemoryDiff:
    document = diff_document(user, record)
    changes = document["operations"]
    return session_service_pb2.MemoryDiff(
        archive_uri=document["archive_uri"],
        extract_time=timestamp(record.done_at),
        revision=record.revision,
        adds=[_change(entry) for entry in changes["adds"]],
        updates=[_change(entry) for entry in changes["updates"]],
        deletes=[_change(entry) for entry in changes["deletes"]],
        extractor=extractor_info(json.dumps(document["extractor"])),
    )


def _change(entry: dict[str, Any]) -> session_service_pb2.MemoryChange:
    return session_service_pb2.MemoryChange(
        uri=entry["uri"],
        memory_type=entry["memory_type"],
        before=entry.get("before", entry.get("deleted_content", "")),
        after=entry.get("after", ""),
        version=entry["version"],
        reason=entry["reason"],
        message_ids=entry["message_ids"],
        shortened=entry.get("shortened", False),
    )


def commit_response(commit: Commit) -> session_service_pb2.CommitSessionResponse:
    return session_service_pb2.CommitSessionResponse(
        status=session_service_pb2.COMMIT_STATUS_ACCEPTED,
        task_id=commit.task_id,
        archive_uri=commit.archive_uri,
        archived=True,
    )


def append_response(result: AppendResult) -> session_service_pb2.AddMessagesResponse:
    return session_service_pb2.AddMessagesResponse(
        messages=[
            session_service_pb2.AddedMessage(id=one.message_id, sequence=one.sequence) for one in result.messages
        ],
        live_message_count=result.live,
        auto_commit=commit_response(result.commit) if isinstance(result.commit, Commit) else None,
    )


def encode_append_response(result: AppendResult) -> bytes:
    return append_response(result).SerializeToString()
