"""Long texts are searched for secrets in a process, with the same results."""

import pytest
from structlog.testing import capture_logs

from runekeep_schemas.secrets import withhold
from runekeep_server.protocol import secret_scan
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.secret_scan import MAX_INLINE_CHARACTERS, withhold_all

TEXTS = [
    "The PIN is 4711. " + "No secret here. " * (MAX_INLINE_CHARACTERS // 16),
    "",
    "Bücher und 密码是abc123!\x00\u2028",
    "password: correct-h0rse",
]


def test_a_process_finds_what_is_found_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [withhold(text) for text in TEXTS]
    assert [len(found) for _, found in here] == [1, 0, 1, 1]
    with monkeypatch.context() as patched:
        # Were they searched here, this would show.
        patched.setattr("runekeep_schemas.secrets.withhold", None)
        assert withhold_all(TEXTS) == here


def test_without_a_process_texts_are_searched_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with capture_logs() as logs:
        assert withhold_all(TEXTS) == [withhold(text) for text in TEXTS]
    assert [line["event"] for line in logs] == ["secret_scan_failed"]


def test_a_search_that_takes_too_long_is_not_repeated_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_scan, "CPU_SECONDS", 1.0)
    monkeypatch.setattr(secret_scan, "CPU_SECONDS_PER_MEGACHARACTER", 0.0)
    monkeypatch.setattr("runekeep_schemas.secrets.withhold", None)
    with pytest.raises(ApiError, match="took too long") as failed:
        withhold_all(["PIN for " * 1_000_000])
    assert failed.value.code.name == "UNAVAILABLE"
