"""Endpoints of accounts as settings: what is refused, and how it is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from runekeep_server.services import embedding_options, rerank_options
from runekeep_server.settings import SettingsError, load_settings

KEY = "sk-secret-of-the-endpoint"
DEFAULTS = {
    "EMBEDDER": "openai",
    "EMBEDDING__URL": "http://default.example/v1",
    "EMBEDDING__MODEL": "m",
    "EMBEDDING__DIMENSION": "8",
}
OWN = {"url": "http://own.example/v1", "model": "m"}


def load(monkeypatch: pytest.MonkeyPatch, accounts: Any, **variables: str) -> Any:
    for name, value in ({**DEFAULTS, **variables}).items():
        monkeypatch.setenv(f"RUNEKEEP_{name}", value)
    monkeypatch.setenv("RUNEKEEP_ACCOUNT_ENDPOINTS", json.dumps(accounts))
    return load_settings()


REFUSED: tuple[tuple[Any, str], ...] = (
    ({"embeding": OWN}, "account_endpoints.acme.embeding: there is no such setting"),
    ({"embedding": {**OWN, "key": KEY}}, "account_endpoints.acme.embedding.key: there is no such setting"),
    ({"embedding": "no"}, "account_endpoints.acme.embedding (RUNEKEEP_ACCOUNT_ENDPOINTS): must be an endpoint with a"),
    (
        {"embedding": {"model": "m", "key_env": "OWN_KEY"}},
        "acme.embedding.url (RUNEKEEP_ACCOUNT_ENDPOINTS): Field required",
    ),
    ({"embedding": {**OWN, "url": f"http://x:{KEY}@own.example"}}, "without a key: that is key_file"),
    ({"embedding": {**OWN, "key_file": "/no/such/file"}}, "key_file: /no/such/file cannot be read: No such file"),
    ({"embedding": {**OWN, "key_env": "NO_KEY"}}, "key_env: the variable NO_KEY is not set"),
    ({"embedding": {**OWN, "key_env": "OWN_KEY", "key_file": "/x"}}, "leave one of them out"),
    ({}, "account acme lacks `embedding`: give an endpoint, or `default`"),
    ({"embedding": "none"}, "must be an endpoint with a `url`, or `default`"),
    (
        {"embedding": {"url": "http://own.example/v1"}},
        "acme.embedding.model (RUNEKEEP_ACCOUNT_ENDPOINTS): Field required",
    ),
    ({"embedding": {**OWN, "model": "old"}}, "serves the model 'old', but embedding.model is 'm'"),
    ({"embedding": OWN, "rerank": "none"}, "account acme has `rerank`, which this server does not use"),
    ({"embedding": OWN, "next_embedding": OWN}, "account acme has `next_embedding`, which this server does not use"),
)


@pytest.mark.parametrize(("entry", "message"), REFUSED)
def test_a_wrong_entry_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, entry: Any, message: str) -> None:
    monkeypatch.setenv("OWN_KEY", KEY)
    with pytest.raises(SettingsError) as refused:
        load(monkeypatch, {"acme": entry})
    assert message in str(refused.value) and KEY not in str(refused.value)


def test_an_empty_key_file_and_a_wrong_account_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "key"
    empty.touch()
    with pytest.raises(SettingsError, match=r"key_file: .* is empty"):
        load(monkeypatch, {"acme": {"embedding": {**OWN, "key_file": str(empty)}}})
    with pytest.raises(SettingsError, match="'a/b' cannot be the id of an account"):
        load(monkeypatch, {"a/b": {"embedding": OWN}})


def test_each_kind_that_is_used_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = {"RERANKER": "endpoint", "RERANK__URL": "http://default.example"}
    with pytest.raises(SettingsError, match="account acme lacks `rerank`"):
        load(monkeypatch, {"acme": {"embedding": OWN}}, **reranker)
    with pytest.raises(SettingsError, match="account acme lacks `next_embedding`"):
        load(monkeypatch, {"acme": {"embedding": OWN}}, NEXT_EMBEDDING__URL="http://next.example")


def test_options_hold_endpoints_and_keys_of_accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    monkeypatch.setenv("OWN_KEY", "other")
    accounts = {
        "acme": {"embedding": {**OWN, "key_file": str(file)}, "rerank": {**OWN, "key_env": "OWN_KEY", "model": "r"}},
        "Globex-2": {"embedding": "default", "rerank": "none"},
        "third": {"embedding": "default", "rerank": "none"},
    }
    settings = load(monkeypatch, accounts, RERANKER="endpoint", EMBEDDER_API_KEY="default's")
    embedding, rerank = embedding_options(settings), rerank_options(settings)
    assert list(embedding.by_account) == ["acme"]
    own, reranker = embedding.by_account["acme"], rerank.by_account["acme"]
    assert (own.url, own.api_key, own.model, own.dimension) == (OWN["url"], KEY, "m", 8)
    assert reranker is not None and (reranker.api_key, reranker.model, reranker.form) == ("other", "r", "auto")
    assert rerank.url == "" and rerank.by_account["third"] is None, "accounts without an entry have no reranker"
    assert KEY not in repr(settings) + repr(embedding) + repr(rerank)


def test_a_change_that_was_finished_in_the_settings_but_not_in_an_entry_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step that is easily forgotten: texts would go to the endpoint of all others, or to one with another model."""
    new = {"url": "http://new.example/v1", "model": "new"}
    changing = {
        "NEXT_EMBEDDING__URL": "http://next.example",
        "NEXT_EMBEDDING__MODEL": "new",
        "NEXT_EMBEDDING__DIMENSION": "8",
    }
    entries = ({"embedding": "default", "next_embedding": new}, {"embedding": OWN, "next_embedding": "default"})
    for entry in entries:
        load(monkeypatch, {"acme": entry}, **changing)
        with pytest.raises(SettingsError, match="have to change places"):
            load(monkeypatch, {"acme": entry}, **{**changing, "EMBEDDING__MODEL": "new", "NEXT_EMBEDDING__MODEL": "m"})
