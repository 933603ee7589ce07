"""The errors of the API, one function for each: its code, its reason, what was wrong and what to do."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import grpc

from runekeep.v1 import common_pb2
from runekeep_server.protocol.api_error import (
    MAX_NAME_BYTES,
    ApiError,
    FieldViolation,
    Precondition,
    Resource,
    cut_text,
)

_MAX_REVISIONS = 8


def invalid(field: str, what: str, todo: str = "") -> ApiError:
    """INVALID_ARGUMENT for one field. `field`: path in the request. `what`: predicate of the sentence, for example "is
    no URI of a session"."""
    return invalid_fields([violation(field, what, todo)])


def violation(field: str, what: str, todo: str = "") -> FieldViolation:
    """Returns a violation of `field` whose description is the sentences `what` and `todo`."""
    return FieldViolation(field, _sentences(what, todo[:1].upper() + todo[1:]))


def invalid_fields(violations: Sequence[FieldViolation]) -> ApiError:
    """INVALID_ARGUMENT for one or more fields."""
    first = violations[0]
    text = f"{first.field}: {first.description}" if first.field else first.description
    if len(violations) > 1:
        more = len(violations) - 1
        text = f"{text.rstrip('.')}. {more} more {'field is' if more == 1 else 'fields are'} wrong."
    return ApiError(
        grpc.StatusCode.INVALID_ARGUMENT, common_pb2.ERROR_REASON_FIELD_INVALID, text, field_violations=violations
    )


def request_id_reused(request_id: str) -> ApiError:
    """INVALID_ARGUMENT: the id was used for another request."""
    text = "was used for a request with another body. Make a new request_id for every new request."
    return ApiError(
        grpc.StatusCode.INVALID_ARGUMENT,
        common_pb2.ERROR_REASON_REQUEST_ID_REUSED,
        f"request_id {_quote(request_id)} {text}",
        field_violations=[FieldViolation("request_id", text)],
    )


def not_found(kind: str, name: str, todo: str = "") -> ApiError:
    """NOT_FOUND: there is no `kind` (a word such as `session`) called `name`."""
    return ApiError(
        grpc.StatusCode.NOT_FOUND,
        common_pb2.ERROR_REASON_RESOURCE_NOT_FOUND,
        _sentences(f"There is no {kind} {_quote(name)}", todo),
        resource=Resource(kind, name),
    )


def already_exists(kind: str, name: str, todo: str = "Choose another id, or use the one that is there.") -> ApiError:
    """ALREADY_EXISTS: the name is taken."""
    return ApiError(
        grpc.StatusCode.ALREADY_EXISTS,
        common_pb2.ERROR_REASON_RESOURCE_EXISTS,
        _sentences(f"There is already a {kind} {_quote(name)}", todo),
        resource=Resource(kind, name),
    )


def aborted_version(kind: str, name: str, *, expected: int, current: int) -> ApiError:
    """ABORTED: the caller's base version is not the current one. 0 in either means that there is none."""
    if current:
        what = f"The {kind} {_quote(name)} is at version {current}"
        what += f", not {expected}" if expected else ", and the change says that there is none"
    else:
        what = f"There is no {kind} {_quote(name)} now, and the change was made on version {expected} of it"
    return ApiError(
        grpc.StatusCode.ABORTED,
        common_pb2.ERROR_REASON_VERSION_MISMATCH,
        _sentences(what, "Read it again, then repeat the change on the version that is there"),
        resource=Resource(kind, name),
        metadata={"expected_version": str(expected), "current_version": str(current)},
    )


def revision_moved(expected: int, newest: int) -> ApiError:
    """ABORTED: the newest revision of the space is not the one that the caller expected."""
    return ApiError(
        grpc.StatusCode.ABORTED,
        common_pb2.ERROR_REASON_VERSION_MISMATCH,
        _sentences(f"The newest revision is {newest}, not {expected}", "See a preview again, then repeat the call"),
        metadata={"expected_revision": str(expected), "newest_revision": str(newest)},
    )


def patch_not_applicable(name: str, what: str) -> ApiError:
    """FAILED_PRECONDITION: a SEARCH block does not fit the text of the memory `name`."""
    return _precondition(
        common_pb2.ERROR_REASON_PATCH_NOT_APPLICABLE, name, what, "Read the memory again and make the patch anew."
    )


def write_not_allowed(name: str, what: str, todo: str) -> ApiError:
    """FAILED_PRECONDITION: the policy or the memory type forbids the write."""
    return _precondition(common_pb2.ERROR_REASON_WRITE_NOT_ALLOWED, name, what, todo)


def task_state(task_id: str, state: str, todo: str) -> ApiError:
    """FAILED_PRECONDITION: the state of the task (a word such as `completed`) does not allow the call."""
    return _precondition(common_pb2.ERROR_REASON_TASK_STATE, task_id, f"The task {_quote(task_id)} is {state}", todo)


def commit_not_finished(archive_uri: str) -> ApiError:
    """FAILED_PRECONDITION: the archive's commit has not been applied."""
    return _precondition(
        common_pb2.ERROR_REASON_COMMIT_NOT_FINISHED,
        archive_uri,
        f"The commit of {_quote(archive_uri)} is not finished",
        "Follow its task with WatchTask, then repeat.",
    )


def proposal_decided(task_id: str, number: int, state: str) -> ApiError:
    """FAILED_PRECONDITION: the operation of a proposal is already `state` (accepted or refused)."""
    return _precondition(
        common_pb2.ERROR_REASON_PROPOSAL_DECIDED,
        task_id,
        f"Operation {number} of the proposal {_quote(task_id)} is already {state}",
        "See GetProposal for what is open. RollbackRevision takes back what was accepted.",
    )


def buckets_disabled() -> ApiError:
    """FAILED_PRECONDITION: memory buckets are switched off on this server."""
    return _precondition(
        common_pb2.ERROR_REASON_BUCKETS_DISABLED,
        "buckets",
        "Memory buckets are switched off on this server",
        "Do without them, or have its operator set memory_reconcile_enabled, and not long_memories_log.",
    )


def rollback_conflict(what: str, later: Mapping[str, Sequence[int]], **metadata: str) -> ApiError:
    """FAILED_PRECONDITION: later revisions changed memories that `what`, a revision or a session in words, changed.
    `later`: the later revisions by URI. `metadata`: what names the revision or the session to programs."""
    first = next(iter(later))
    others = len(later) - 1
    also = f", and {others} other {'memory' if others == 1 else 'memories'} too" if others else ""
    return ApiError(
        grpc.StatusCode.FAILED_PRECONDITION,
        common_pb2.ERROR_REASON_ROLLBACK_CONFLICT,
        _sentences(
            f"{_quote(first)} was changed after {what}, by {_revisions(later[first])}{also}",
            "Call with `preview` to see what would be lost; roll those revisions back first, or set `force`",
        ),
        preconditions=[
            Precondition("ROLLBACK_CONFLICT", uri, f"changed by {_revisions(numbers)}")
            for uri, numbers in later.items()
        ],
        metadata={**metadata, "memories": str(len(later))},
    )


def session_rollback_too_large(session: str, limit: int, newest: int) -> ApiError:
    """RESOURCE_EXHAUSTED: a session changed more than one rollback takes back. `newest`: its newest revision that is
    not taken back."""
    return too_large(
        f"The commits of session {_quote(session)} made more than {limit} changes of memories, which is the limit of"
        " one rollback; nothing was changed",
        f"Take back its revisions one by one with RollbackRevision, the newest first, which is revision {newest}; when"
        " few enough are left, repeat the call for them",
    )


def protocol_violation(what: str, todo: str) -> ApiError:
    """FAILED_PRECONDITION: the worker broke the order of the Work stream."""
    return _precondition(common_pb2.ERROR_REASON_PROTOCOL_VIOLATION, "Work", what, todo)


def commit_backlog_full(limit: int, retry_after: float) -> ApiError:
    """RESOURCE_EXHAUSTED: the user has `limit` open tasks of one kind."""
    return ApiError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        common_pb2.ERROR_REASON_COMMIT_BACKLOG_FULL,
        f"This user has {limit} tasks of this kind that are not finished, which is the limit. Wait until extractors "
        "have worked some of them off, then repeat.",
        retry_after=retry_after,
        metadata={"limit": str(limit)},
    )


def rate_limited(what: str, retry_after: float, limit: str) -> ApiError:
    """RESOURCE_EXHAUSTED: too many calls; nothing was done. `limit`: the name of the limit that was reached."""
    return ApiError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        common_pb2.ERROR_REASON_RATE_LIMITED,
        _sentences(what, "Repeat the call after the time that RetryInfo tells"),
        retry_after=retry_after,
        metadata={"limit": limit},
    )


def quota_exceeded(account: str) -> ApiError:
    """RESOURCE_EXHAUSTED: the account is at its quota of stored bytes."""
    return ApiError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        common_pb2.ERROR_REASON_QUOTA_EXCEEDED,
        f"The account {_quote(account)} has stored as much as it may. Delete or erase something, which is counted after"
        " some minutes, or ask an operator for a larger stored_bytes.",
        metadata={"limit": "stored_bytes"},
    )


def too_large(what: str, todo: str) -> ApiError:
    """RESOURCE_EXHAUSTED: larger than this server accepts."""
    return ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, common_pb2.ERROR_REASON_TOO_LARGE, _sentences(what, todo))


def field_too_large(field: str, size: int, limit: int, todo: str) -> ApiError:
    """RESOURCE_EXHAUSTED: the value of the request's `field` (a path) would take `size` bytes in an answer, more than
    `limit`. Nothing was stored."""
    text = _sentences(f"takes {size} bytes, and {limit} is the limit", todo)
    return ApiError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        common_pb2.ERROR_REASON_TOO_LARGE,
        f"{field} {text}",
        field_violations=[FieldViolation(field, text)],
        metadata={"field": field, "size": str(size), "limit": str(limit)},
    )


def unavailable(dependency: str, what: str, retry_after: float = 1.0) -> ApiError:
    """UNAVAILABLE: `dependency` (`store`, `index`, `embedder`, `blobs`) cannot serve now; `what` says what happened."""
    return ApiError(
        grpc.StatusCode.UNAVAILABLE,
        common_pb2.ERROR_REASON_DEPENDENCY_UNAVAILABLE,
        _sentences(what, "Repeat the call, a mutation with the same request_id."),
        retry_after=retry_after,
        metadata={"dependency": dependency},
    )


def space_busy(retry_after: float = 1.0) -> ApiError:
    """UNAVAILABLE: the user's data cannot be read or written for a while."""
    return ApiError(
        grpc.StatusCode.UNAVAILABLE,
        common_pb2.ERROR_REASON_SPACE_BUSY,
        "The user's data is being deleted, erased or imported. Repeat the call, a mutation with the same request_id.",
        retry_after=retry_after,
    )


def space_not_empty(user: str) -> ApiError:
    """FAILED_PRECONDITION: an import and a copy need a user without data."""
    return _precondition(
        common_pb2.ERROR_REASON_SPACE_NOT_EMPTY,
        user,
        f"The user {_quote(user)} has sessions, memories or tasks already",
        "Import or copy to a user without data, or delete this user first.",
    )


def space_changed(user: str) -> ApiError:
    """ABORTED: data was deleted or erased while it was exported."""
    return ApiError(
        grpc.StatusCode.ABORTED,
        common_pb2.ERROR_REASON_VERSION_MISMATCH,
        f"Data of the user {_quote(user)} was deleted or erased while it was exported. Throw away what has arrived, and"
        " export again.",
        resource=Resource("user", user),
    )


def copied_space_changed(user: str) -> ApiError:
    """ABORTED: data was deleted or erased while it was copied to another user."""
    return ApiError(
        grpc.StatusCode.ABORTED,
        common_pb2.ERROR_REASON_VERSION_MISMATCH,
        f"Data of the user {_quote(user)} was deleted or erased while it was copied. Nothing of the copy was kept; copy"
        " again.",
        resource=Resource("user", user),
    )


def export_invalid(what: str) -> ApiError:
    """INVALID_ARGUMENT: the data to import is not an export, or a damaged one."""
    text = _sentences(what[:1].upper() + what[1:], "Nothing of it was kept. Send an export as it was received.")
    return ApiError(
        grpc.StatusCode.INVALID_ARGUMENT,
        common_pb2.ERROR_REASON_EXPORT_INVALID,
        text,
        field_violations=[FieldViolation("data", text)],
    )


def index_behind(wanted: int, reached: int) -> ApiError:
    """DEADLINE_EXCEEDED: the index did not reach revision `wanted` in time."""
    return ApiError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        common_pb2.ERROR_REASON_INDEX_BEHIND,
        f"Search has reached revision {reached}, not {wanted} yet. Repeat with more time, or without min_revision.",
        metadata={"wanted_revision": str(wanted), "indexed_revision": str(reached)},
    )


def deadline_exceeded(seconds: float) -> ApiError:
    """DEADLINE_EXCEEDED: the server's default deadline passed. It has no reason, like a deadline that the caller
    set."""
    return ApiError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        common_pb2.ERROR_REASON_UNSPECIFIED,
        f"The call took longer than {seconds:g} s, which is the limit where the caller sets no deadline. Set a longer "
        "one, or repeat; a mutation with the same request_id.",
    )


def deadline_passed() -> ApiError:
    """DEADLINE_EXCEEDED, without a reason: no time was left to begin the call's work."""
    return ApiError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        common_pb2.ERROR_REASON_UNSPECIFIED,
        "The call's time was over before its turn came. Repeat it with more time, a mutation with the same request_id.",
    )


def unimplemented() -> ApiError:
    """UNIMPLEMENTED, without a reason, as gRPC itself answers for an unknown method."""
    return ApiError(
        grpc.StatusCode.UNIMPLEMENTED,
        common_pb2.ERROR_REASON_UNSPECIFIED,
        "This server does not serve the method. Use a newer server.",
    )


def lease_lost(job_id: str, what: str = "") -> ApiError:
    """ABORTED: the worker no longer holds the lease of the job."""
    return ApiError(
        grpc.StatusCode.ABORTED,
        common_pb2.ERROR_REASON_LEASE_LOST,
        _sentences(what or f"The lease of job {_quote(job_id)} is not held any more", "Stop the work on it."),
        resource=Resource("job", job_id),
    )


def unauthenticated(what: str, todo: str) -> ApiError:
    """UNAUTHENTICATED: the call has no credentials that identify the caller."""
    return ApiError(grpc.StatusCode.UNAUTHENTICATED, common_pb2.ERROR_REASON_ACCESS_DENIED, _sentences(what, todo))


def access_denied(what: str, todo: str) -> ApiError:
    """PERMISSION_DENIED: the caller is known, but may not do this, or not in this name."""
    return ApiError(grpc.StatusCode.PERMISSION_DENIED, common_pb2.ERROR_REASON_ACCESS_DENIED, _sentences(what, todo))


def data_damaged(kind: str) -> ApiError:
    """DATA_LOSS: stored bytes differ from what was written. `kind`: `blob` or `database`."""
    return ApiError(
        grpc.StatusCode.DATA_LOSS,
        common_pb2.ERROR_REASON_DATA_DAMAGED,
        f"A stored {kind} is damaged, and what it holds is not served. Ask the operator to restore it from a backup.",
        metadata={"data": kind},
    )


def internal() -> ApiError:
    """INTERNAL with a random incident id in the metadata. It reveals nothing about what happened."""
    incident = secrets.token_hex(8)
    return ApiError(
        grpc.StatusCode.INTERNAL,
        common_pb2.ERROR_REASON_INTERNAL,
        f"The server made a mistake. Report incident {incident} to its operator: the logs hold what happened.",
        metadata={"incident": incident},
    )


def _precondition(reason: common_pb2.ErrorReason.ValueType, subject: str, what: str, todo: str) -> ApiError:
    text = _sentences(what, todo)
    kind = common_pb2.ErrorReason.Name(reason).removeprefix("ERROR_REASON_")
    return ApiError(
        grpc.StatusCode.FAILED_PRECONDITION, reason, text, preconditions=[Precondition(kind, subject, text)]
    )


def _revisions(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MAX_REVISIONS]))
    more = len(numbers) - _MAX_REVISIONS
    return f"{'revision' if len(numbers) == 1 else 'revisions'} {shown}{f' and {more} more' if more > 0 else ''}"


def _sentences(what: str, todo: str) -> str:
    return " ".join(part.rstrip(".") + "." for part in (what, todo) if part)


def _quote(name: str) -> str:
    return f"`{cut_text(name, MAX_NAME_BYTES)}`"
