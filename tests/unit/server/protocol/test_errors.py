"""Errors become google.rpc.Status with the details that the contract promises."""

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from runekeep.v1 import common_pb2
from runekeep_server.protocol import errors
from runekeep_server.protocol.api_error import ApiError, FieldViolation, to_status
from runekeep_server.protocol.error_mapping import as_api_error
from runekeep_storage.search.requests import SearchUnanswerable


def unpack(status: status_pb2.Status) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for packed in status.details:
        name = packed.type_url.rsplit(".", 1)[1]
        assert name not in found
        found[name] = getattr(error_details_pb2, name).FromString(packed.value)
    return found


CASES = [
    (errors.invalid("uri", "is no viking URI", "Begin it with viking://"), "INVALID_ARGUMENT", {"BadRequest"}),
    (errors.request_id_reused("r-1"), "INVALID_ARGUMENT", {"BadRequest"}),
    (errors.not_found("session", "s-1", "Create it first"), "NOT_FOUND", {"ResourceInfo"}),
    (errors.already_exists("session", "s-1"), "ALREADY_EXISTS", {"ResourceInfo"}),
    (errors.aborted_version("memory", "viking://m", expected=1, current=2), "ABORTED", {"ResourceInfo"}),
    (errors.patch_not_applicable("viking://m", "Block 1 is not there"), "FAILED_PRECONDITION", {"PreconditionFailure"}),
    (errors.write_not_allowed("viking://m", "Self is off", "Allow it"), "FAILED_PRECONDITION", {"PreconditionFailure"}),
    (errors.task_state("t-1", "completed", "Nothing is left"), "FAILED_PRECONDITION", {"PreconditionFailure"}),
    (errors.commit_not_finished("viking://a"), "FAILED_PRECONDITION", {"PreconditionFailure"}),
    (errors.buckets_disabled(), "FAILED_PRECONDITION", {"PreconditionFailure"}),
    (errors.protocol_violation("Hello came twice", "Send it once"), "FAILED_PRECONDITION", {"PreconditionFailure"}),
    (errors.commit_backlog_full(1000, 2.5), "RESOURCE_EXHAUSTED", {"RetryInfo"}),
    (errors.too_large("The text has 9 bytes", "Send less"), "RESOURCE_EXHAUSTED", set()),
    (errors.unavailable("embedder", "There is no embedder"), "UNAVAILABLE", {"RetryInfo"}),
    (errors.index_behind(9, 7), "DEADLINE_EXCEEDED", set()),
    (errors.lease_lost("job-1"), "ABORTED", {"ResourceInfo"}),
    (errors.unauthenticated("Nobody is named", "Name somebody"), "UNAUTHENTICATED", set()),
    (errors.internal(), "INTERNAL", set()),
]


@pytest.mark.parametrize(("error", "code", "details"), CASES)
def test_code_reason_and_details(error: ApiError, code: str, details: set[str]) -> None:
    status = to_status(error)
    assert status.code == grpc.StatusCode[code].value[0]
    found = unpack(status)
    assert set(found) == {"ErrorInfo"} | details
    info = found["ErrorInfo"]
    assert isinstance(info, error_details_pb2.ErrorInfo)
    assert info.domain == "runekeep.dev"
    assert f"ERROR_REASON_{info.reason}" == common_pb2.ErrorReason.Name(error.reason)
    # What was wrong, and what to do.
    assert status.message.count(".") >= 2 or len(details & {"BadRequest"}) == 1


def test_a_search_that_cannot_be_answered_says_why() -> None:
    answer = as_api_error(SearchUnanswerable("The index went on meanwhile"))
    assert answer is not None and answer.code is grpc.StatusCode.UNAVAILABLE
    assert str(answer).startswith("The index went on meanwhile. Repeat the call")


def test_retry_delay_keeps_fractions() -> None:
    retry = unpack(to_status(errors.commit_backlog_full(1000, 2.5)))["RetryInfo"]
    assert isinstance(retry, error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToTimedelta().total_seconds() == 2.5


def test_several_fields_in_one_answer() -> None:
    status = to_status(errors.invalid_fields([FieldViolation("a", "is bad"), FieldViolation("b[1]", "is worse")]))
    request = unpack(status)["BadRequest"]
    assert isinstance(request, error_details_pb2.BadRequest)
    assert [(each.field, each.description) for each in request.field_violations] == [
        ("a", "is bad"),
        ("b[1]", "is worse"),
    ]
    assert status.message == "a: is bad. 1 more field is wrong."


@pytest.mark.parametrize("letter", ["a", "é", "漢", "🜁"])
def test_the_longest_errors_fit_into_trailers(letter: str) -> None:
    text = letter * 5000
    longest = [
        ApiError(
            grpc.StatusCode.INVALID_ARGUMENT,
            common_pb2.ERROR_REASON_FIELD_INVALID,
            text,
            field_violations=[FieldViolation(text, text)] * 100,
        ),
        errors.not_found("session", text, text),
        errors.write_not_allowed(text, text, text),
    ]
    for error in longest:
        status = to_status(error)
        # As gRPC sends it: the text with each byte as %XX at worst, the details in base64.
        assert 3 * len(status.message.encode()) + 4 * len(status.SerializeToString()) // 3 < 8000
        assert "�" not in status.message
