"""Page tokens name the last row and hold only for the list that they were made for."""

import base64
import json

import pytest

from runekeep.v1 import session_service_pb2, task_service_pb2
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.pagination import Page, next_token, open_page

KEY = (1760000000000000, "sitzung-漢")
TYPES = (int, str)


def request(**fields: object) -> session_service_pb2.ListMessagesRequest:
    return session_service_pb2.ListMessagesRequest(**({"session": "s-1"} | fields))  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(("asked", "size"), [(0, 50), (1, 1), (200, 200), (9999, 200), (-1, 50)])
def test_page_size(asked: int, size: int) -> None:
    assert open_page(request(page_size=asked), TYPES) == Page(size, None)


def test_token_leads_to_the_next_page_of_any_size() -> None:
    token = next_token(request(page_size=10), KEY)
    assert open_page(request(page_size=20, page_token=token), TYPES) == Page(20, KEY)
    # The token of a later page does not depend on the token that led there.
    assert next_token(request(page_token=token), KEY) == token


def test_token_of_another_list_is_refused() -> None:
    token = next_token(request(), KEY)
    others = [
        request(session="s-2", page_token=token),
        request(scope=session_service_pb2.MESSAGE_SCOPE_ALL, page_token=token),
        session_service_pb2.ListArchivesRequest(session="s-1", page_token=token),
        task_service_pb2.ListTasksRequest(session="s-1", page_token=token),
    ]
    for other in others:
        with pytest.raises(ApiError) as refused:
            open_page(other, TYPES)
        assert refused.value.code.name == "INVALID_ARGUMENT"
        assert refused.value.field_violations[0].field == "page_token"


def forged(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def digest() -> str:
    token = next_token(request(), ())
    return str(json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))[0])


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "no base64!",
        "é",
        "A" * 5000,
        forged({}),
        forged([]),
        forged([1, 2, 3]),
        forged([digest()]),
        forged([digest(), "text", 5]),
        forged([digest(), 5, "text", 6]),
        forged([digest(), True, "text"]),
        forged([digest(), None, "text"]),
        base64.b64encode(b"[" * 3000).decode(),
        base64.b64encode(b"\xff\xfe").decode(),
    ],
)
def test_forged_tokens_are_refused(token: str) -> None:
    with pytest.raises(ApiError) as refused:
        open_page(request(page_token=token), TYPES)
    assert refused.value.field_violations[0].field == "page_token"
