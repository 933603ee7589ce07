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
OWN = {"url": "http://own.example/v1"}


def load(monkeypatch: pytest.MonkeyPatch, accounts: Any, **variables: str) -> Any:
    for name, value in ({**DEFAULTS, **variables}).items():
        monkeypatch.setenv(f"RUNEKEEP_{name}", value)
    monkeypatch.setenv("RUNEKEEP_ACCOUNT_ENDPOINTS", json.dumps(accounts))
    return load_settings()


REFUSED: tuple[tuple[Any, str], ...] = (
    ({"embeding": OWN}, "account_endpoints.acme.embeding: there is no such setting"),
    ({"embedding": {**OWN, "key": KEY}}, "account_endpoints.acme.embedding.key: there is no such setting"),
    ({"embedding": "no"}, "account_endpoints.acme.embedding (RUNEKEEP_ACCOUNT_ENDPOINTS): must be an endpoint with a"),
    ({"embedding": {"key_env": "OWN_KEY"}}, "acme.embedding.url (RUNEKEEP_ACCOUNT_ENDPOINTS): Field required"),
    ({"embedding": {"url": f"http://x:{KEY}@own.example"}}, "without a key: that is key_file"),
    ({"embedding": {**OWN, "key_file": "/no/such/file"}}, "key_file: /no/such/file cannot be read: No such file"),
    ({"embedding": {**OWN, "key_env": "NO_KEY"}}, "key_env: the variable NO_KEY is not set"),
    ({"embedding": {**OWN, "key_env": "OWN_KEY", "key_file": "/x"}}, "leave one of them out"),
    ({}, "account acme lacks `embedding`: give an endpoint, `default`"),
    ({"embedding": OWN, "rerank": OWN}, "account acme has `rerank`, which needs the reranker `endpoint`"),
    ({"embedding": OWN, "next_embedding": "default"}, "is `default`, but next_embedding.url is empty"),
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
        "Globex-2": {"embedding": "none", "rerank": "none"},
        "third": {"embedding": "default", "rerank": "none"},
    }
    settings = load(monkeypatch, accounts, RERANKER="endpoint", EMBEDDER_API_KEY="default's")
    embedding, rerank = embedding_options(settings), rerank_options(settings)
    assert list(embedding.by_account) == ["acme", "Globex-2"] and embedding.by_account["Globex-2"] is None
    own, reranker = embedding.by_account["acme"], rerank.by_account["acme"]
    assert own is not None and (own.url, own.api_key, own.model, own.dimension) == (OWN["url"], KEY, "m", 8)
    assert reranker is not None and (reranker.api_key, reranker.model, reranker.form) == ("other", "r", "auto")
    assert rerank.url == "" and rerank.by_account["third"] is None, "accounts without an entry have no reranker"
    assert KEY not in repr(settings) + repr(embedding) + repr(rerank)


def test_without_a_default_endpoint_accounts_need_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedding_options(load(monkeypatch, {"acme": {"embedding": OWN}}, EMBEDDING__URL="")).url == ""
    with pytest.raises(SettingsError, match=r"embedding\.url .*: the embedder `openai` needs a value"):
        load(monkeypatch, {"acme": {"embedding": "none"}}, EMBEDDING__URL="")
