"""Errors of calls: one exception class for each gRPC status, with the details that the server sent."""

from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

_DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """An invalid field of the request, and the rule it breaks."""

    field: str
    description: str


class RunekeepError(Exception):
    """A call failed. The subclass says how."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        reason: str = "",
        violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
        resource: str = "",
        resource_type: str = "",
        metadata: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        """The server's message."""
        self.code = code
        """gRPC status, for example `NOT_FOUND`."""
        self.reason = reason
        """ErrorReason of common.proto, for example `RESOURCE_NOT_FOUND`; empty if the server sent none."""
        self.violations = violations
        """Invalid fields of the request."""
        self.retry_after = retry_after
        """Seconds after which to repeat the call; None if the server names none."""
        self.resource = resource
        """Name of the resource that is missing or conflicts."""
        self.resource_type = resource_type
        """What the resource is, for example `session`; empty if the server names none."""
        self.metadata = metadata or {}
        """Further details of the reason."""

    @property
    def field(self) -> str:
        """Path of the invalid field of the request, for example `messages[0].parts`; the first one of several, empty if
        the server names none."""
        return self.violations[0].field if self.violations else ""

    @property
    def retryable(self) -> bool:
        """Whether the same call, a mutation with the same `request_id`, may succeed later."""
        return False

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}" if not self.reason else f"{self.code} ({self.reason}): {self.message}"
        for violation in self.violations:
            said = f"{violation.field}: {violation.description}"
            # The server's message may begin with it.
            if not self.message.startswith(said):
                text += f"\n  {said}"
        return text


class InvalidArgumentError(RunekeepError):
    """The request breaks a rule; `violations` names the fields."""


class NotFoundError(RunekeepError):
    """The session, task or document does not exist."""


class AlreadyExistsError(RunekeepError):
    """The name is taken."""


class AbortedError(RunekeepError):
    """Another change came first. Read again, then repeat the call."""


class FailedPreconditionError(RunekeepError):
    """The state of the resource does not allow this call."""


class ResourceExhaustedError(RunekeepError):
    """Too many open commits or calls, or too large a message; `retry_after` says when to repeat the call."""

    @property
    def retryable(self) -> bool:
        return self.retry_after is not None


class AccessDeniedError(RunekeepError):
    """The caller is unknown, or may not make this call."""


class UnavailableError(RunekeepError):
    """The server cannot be reached, or a part it needs is away, after several attempts."""

    @property
    def retryable(self) -> bool:
        return True


class TlsError(UnavailableError):
    """No connection, because of certificates or because only one side uses TLS; the message says what to do. `certain`:
    the cause is certain, so the client does not try again."""

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message, code="UNAVAILABLE")
        self.certain = certain

    @property
    def retryable(self) -> bool:
        return not self.certain


class DeadlineExceededError(RunekeepError, TimeoutError):
    """No response in time. A mutation may have happened: repeat it with the same `request_id`."""

    @property
    def retryable(self) -> bool:
        return True


_LARGER = "larger than max"

_CLASSES: dict[grpc.StatusCode, type[RunekeepError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAUTHENTICATED: AccessDeniedError,
    grpc.StatusCode.PERMISSION_DENIED: AccessDeniedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    # A server that is stopping answers new calls with CANCELLED. Calls that we cancel raise asyncio.CancelledError.
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def from_rpc_error(error: grpc.aio.AioRpcError) -> RunekeepError:
    """Returns the exception for a failed call, with its google.rpc details."""
    details = _read_details(read_status(error))
    message = details.pop("message", "") or error.details() or "no message"
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and not details and _LARGER in message:
        # gRPC itself refuses a message that is too large, before the server can say what to do.
        message = f"{message}. Send or ask for less at once; the server's RUNEKEEP_MAX_MESSAGE_BYTES bounds requests."
    return _CLASSES.get(error.code(), RunekeepError)(message, code=error.code().name, **details)


def from_status(status: Any) -> RunekeepError:
    """Returns the exception for a google.rpc.Status within a response."""
    details = _read_details(status)
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return _CLASSES.get(code, RunekeepError)(details.pop("message") or "no message", code=code.name, **details)


def read_status(error: grpc.aio.AioRpcError) -> Any:
    """Returns the google.rpc.Status that the server sent with an error; an empty one if it sent none."""
    sent = (value for key, value in error.trailing_metadata() or () if key == _DETAILS_KEY and isinstance(value, bytes))
    return status_pb2.Status.FromString(next(sent, b""))


def _read_details(status: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"message": status.message}
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        resource = error_details_pb2.ResourceInfo()
        if detail.Unpack(info):
            found["reason"] = info.reason
            found["metadata"] = dict(info.metadata)
        elif detail.Unpack(bad_request):
            found["violations"] = tuple(
                FieldViolation(violation.field, violation.description) for violation in bad_request.field_violations
            )
        elif detail.Unpack(retry):
            found["retry_after"] = retry.retry_delay.ToNanoseconds() / 1e9
        elif detail.Unpack(resource):
            found["resource"] = resource.resource_name
            found["resource_type"] = resource.resource_type
    return found
