"""Errors that callers see: a code, a stable reason, what was wrong and what to do.

On the wire an error is a google.rpc.Status (https://google.aip.dev/193) with one ErrorInfo, and with BadRequest,
RetryInfo, ResourceInfo and PreconditionFailure where they apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from runekeep.v1 import common_pb2

DOMAIN = "runekeep.dev"

# A status travels twice in the trailers, as text and in the details, and gRPC peers accept 8 KiB of trailers by
# default. Longer texts are cut, because a status that does not fit reaches the caller as a different error.
_MAX_MESSAGE_BYTES = 768
MAX_NAME_BYTES = 256
_MAX_VIOLATIONS = 10
_MAX_VIOLATION_BYTES = 160
_MAX_PRECONDITIONS = 100
_MAX_PRECONDITION_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """`field`: path in the request, such as `messages[0].parts`. `description`: what is wrong with it."""

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class Resource:
    """`kind`: a word such as `session`. `name`: its URI or id."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Precondition:
    """A state that prevented the call. `kind`: a word such as `TASK_STATE`. `subject`: what is in that state."""

    kind: str
    subject: str
    description: str


class ApiError(Exception):
    """An error that is meant for the caller.

    `message` says what was wrong and what to do. It contains no user content except names that the caller gave.
    `retry_after`: seconds. `reason` ERROR_REASON_UNSPECIFIED sends no ErrorInfo.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: common_pb2.ErrorReason.ValueType,
        message: str,
        *,
        field_violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
        resource: Resource | None = None,
        preconditions: Sequence[Precondition] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.field_violations = tuple(field_violations)
        self.retry_after = retry_after
        self.resource = resource
        self.preconditions = tuple(preconditions)
        self.metadata = dict(metadata or {})

    @property
    def reason_name(self) -> str:
        """The reason without its prefix, as callers see it; empty if there is none."""
        if self.reason == common_pb2.ERROR_REASON_UNSPECIFIED:
            return ""
        return common_pb2.ErrorReason.Name(self.reason).removeprefix("ERROR_REASON_")


def to_status(error: ApiError) -> status_pb2.Status:
    """Returns the error with its details, cut to what fits into the trailers of a call."""
    details: list[Message] = []
    if name := error.reason_name:
        details.append(error_details_pb2.ErrorInfo(reason=name, domain=DOMAIN, metadata=error.metadata))
    if error.field_violations:
        details.append(
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(
                        field=cut_text(violation.field, _MAX_VIOLATION_BYTES),
                        description=cut_text(violation.description, _MAX_VIOLATION_BYTES),
                    )
                    for violation in error.field_violations[:_MAX_VIOLATIONS]
                ]
            )
        )
    if error.preconditions:
        details.append(_precondition_failure(error.preconditions))
    if error.resource is not None:
        details.append(
            error_details_pb2.ResourceInfo(
                resource_type=error.resource.kind, resource_name=cut_text(error.resource.name, MAX_NAME_BYTES)
            )
        )
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=error.code.value[0], message=cut_text(error.message, _MAX_MESSAGE_BYTES))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _precondition_failure(preconditions: Sequence[Precondition]) -> error_details_pb2.PreconditionFailure:
    """Returns the first preconditions that fit."""
    failure = error_details_pb2.PreconditionFailure()
    for one in preconditions[:_MAX_PRECONDITIONS]:
        failure.violations.add(
            type=one.kind,
            subject=cut_text(one.subject, MAX_NAME_BYTES),
            description=cut_text(one.description, _MAX_VIOLATION_BYTES),
        )
        if failure.ByteSize() > _MAX_PRECONDITION_BYTES:
            del failure.violations[-1]
            break
    return failure


def cut_text(text: str, most: int) -> str:
    """Returns `text` cut to `most` bytes of UTF-8, with an ellipsis at the end if it was cut."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most:
        return text
    return encoded[: most - 3].decode("utf-8", "ignore") + "…"
