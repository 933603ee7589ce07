"""Rules of the mode mesh that say too little, too much, or fit more than they seem to."""

import json
from pathlib import Path

import pytest

from runekeep_server.settings import SettingsError, load_settings

WORKER = {"scope": "worker"}


@pytest.fixture(autouse=True)
def mesh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNEKEEP_IDENTITY_MODE", "mesh")
    for name in ("CERTIFICATE", "KEY", "CLIENT_CA"):
        monkeypatch.setenv(f"RUNEKEEP_TLS__{name}", "file.pem")


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ({"certificate": "spiffe://m/u", "scope": "user", "account": "acme"}, "needs user"),
        ({"certificate": "spiffe://m/u", "scope": "user", "user": "anna"}, "needs account"),
        ({"certificate": "spiffe://m/u", "scope": "account"}, "needs account"),
        ({"certificate": "spiffe://m/u", "scope": "account", "account": "acme", "user": "anna"}, "has no user"),
        ({"certificate": "spiffe://m/u", "scope": "admin", "account": "acme"}, "has no account"),
        ({"certificate": "spiffe://m/u", "scope": "worker", "user": "anna"}, "has no user"),
        ({"certificate": "spiffe://m/u", "scope": "proxy", "account": "acme"}, "has no account"),
        ({"certificate": "spiffe://m/u", "scope": "user", "account": "../a", "user": "anna"}, "needs account"),
        ({"certificate": "spiffe://m/u", "scope": "user", "account": "acme", "user": "memories"}, "needs user"),
        ({"certificate": "spiffe://m/u", "scope": "root"}, "scope"),
        ({"certificate": "", **WORKER}, "certificate"),
        ({"certificate": "*", **WORKER}, "`*` may stand"),
        ({"certificate": "*.*", **WORKER}, "`*` may stand"),
        ({"certificate": "spiffe://*/worker", **WORKER}, "`*` may stand"),
        ({"certificate": "spiffe://mesh*/worker", **WORKER}, "`*` may stand"),
        ({"certificate": "*://mesh/worker", **WORKER}, "`*` may stand"),
        ({"certificate": "spiffe://mesh/wörker", **WORKER}, "ASCII"),
        ({"certificate": "worker.example.org ", **WORKER}, "without spaces"),
        ({"certificate": "spiffe://m/u", "owner": "me", **WORKER}, "owner"),
    ],
)
def test_a_rule_that_says_something_else_than_it_seems_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, rule: dict[str, str], what: str
) -> None:
    monkeypatch.setenv("RUNEKEEP_MESH__RULES", json.dumps([{"certificate": "good.example.org", **WORKER}, rule]))
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert str(refused.value).startswith("mesh.rules.1") and what in str(refused.value)


@pytest.mark.parametrize(
    "certificate", ["spiffe://m/ns/*/sa/worker", "spiffe://m/worker-*", "*.workers.example.org", "worker.example.org"]
)
def test_a_rule_with_a_part_left_open_is_taken(monkeypatch: pytest.MonkeyPatch, certificate: str) -> None:
    monkeypatch.setenv("RUNEKEEP_MESH__RULES", json.dumps([{"certificate": certificate, **WORKER}]))
    assert load_settings().mesh.rules[0].certificate == certificate
