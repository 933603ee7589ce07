"""Settings that would let strangers in, or keep everybody out, do not come through."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from runekeep_server.settings import Settings, SettingsError, load_settings

OUTSIDE = "0.0.0.0:7433"
KEY, OTHER = "k" * 32, "j" * 32
TLS: dict[str, Any] = {"certificate": "server.pem", "key": "server.key"}
MUTUAL: dict[str, Any] = {**TLS, "client_ca": "ca.pem"}
RULE: dict[str, Any] = {"certificate": "spiffe://x/y", "scope": "worker"}

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("address (RUNEKEEP_ADDRESS): identity_mode `development`", {"address": OUTSIDE}),
    ("address (RUNEKEEP_ADDRESS): identity_mode `development`", {"address": OUTSIDE, "tls": MUTUAL}),
    ("address (RUNEKEEP_ADDRESS): identity_mode `development`", {"address": "example.org:7433"}),
    ("address (RUNEKEEP_ADDRESS): identity_mode `development`", {"address": "[::]:7433"}),
    ("tls.certificate (RUNEKEEP_TLS__CERTIFICATE): without TLS", {"identity_mode": "keys", "address": OUTSIDE}),
    ("tls.certificate (", {"tls": {"key": "server.key"}}),
    ("tls.key (", {"tls": {"certificate": "server.pem"}}),
    ("tls.certificate (", {"tls": {"client_ca": "ca.pem"}}),
    ("admin_key (RUNEKEEP_ADMIN_KEY): keys do not hold", {"admin_key": KEY}),
    ("worker_key (RUNEKEEP_WORKER_KEY): keys do not hold", {"identity_mode": "mesh", "worker_key": KEY}),
    ("admin_key (RUNEKEEP_ADMIN_KEY): must be 32", {"identity_mode": "keys", "admin_key": KEY[:-1]}),
    ("admin_key (RUNEKEEP_ADMIN_KEY): must be 32", {"identity_mode": "keys", "admin_key": f"{KEY} x"}),
    ("admin_key (RUNEKEEP_ADMIN_KEY): must be 32", {"identity_mode": "keys", "admin_key": f"{KEY}ü"}),
    ("worker_key (RUNEKEEP_WORKER_KEY): must be 32", {"identity_mode": "keys", "worker_key": f"{KEY}\n"}),
    ("worker_key (", {"identity_mode": "keys", "admin_key": KEY, "worker_key": KEY}),
    ("mesh.rules (RUNEKEEP_MESH__RULES): nobody could call", {"identity_mode": "mesh", "tls": MUTUAL}),
    (
        "tls.client_ca (RUNEKEEP_TLS__CLIENT_CA)",
        {"identity_mode": "mesh", "address": OUTSIDE, "tls": TLS, "mesh": {"rules": [RULE]}},
    ),
    ("tls.client_ca (", {"identity_mode": "mesh", "mesh": {"rules": [RULE]}}),
    (
        "mesh.trust_loopback (RUNEKEEP_MESH__TRUST_LOOPBACK): others",
        {"identity_mode": "mesh", "address": OUTSIDE, "mesh": {"trust_loopback": True}},
    ),
    (
        "mesh.trust_loopback (RUNEKEEP_MESH__TRUST_LOOPBACK): it is for a proxy that calls without TLS",
        {"identity_mode": "mesh", "tls": MUTUAL, "mesh": {"trust_loopback": True}},
    ),
    ("identity_mode (RUNEKEEP_IDENTITY_MODE): rules for", {"mesh": {"trust_loopback": True}}),
    ("identity_mode (", {"identity_mode": "keys", "tls": MUTUAL, "mesh": {"rules": [RULE]}}),
    *(
        ("mesh.rules", {"identity_mode": "mesh", "tls": MUTUAL, "mesh": {"rules": [{"certificate": "x", **rule}]}})
        for rule in (
            {"scope": "user"},
            {"scope": "user", "account": "acme"},
            {"scope": "user", "account": "acme", "user": "a/b"},
            {"scope": "user", "account": "acme", "user": "sessions"},
            {"scope": "account"},
            {"scope": "account", "account": "acme", "user": "ada"},
            {"scope": "admin", "account": "acme"},
            {"scope": "worker", "user": "ada"},
            {"scope": "proxy", "account": "acme"},
            {"scope": "root"},
        )
    ),
]

TAKEN: list[dict[str, Any]] = [
    {},
    {"address": "localhost:0"},
    {"address": "[::1]:0"},
    {"address": "127.8.9.1:0", "tls": MUTUAL},
    {"identity_mode": "keys"},
    {"identity_mode": "keys", "admin_key": KEY, "worker_key": OTHER},
    {"identity_mode": "keys", "address": OUTSIDE, "tls": TLS, "admin_key": KEY},
    {"identity_mode": "mesh", "mesh": {"trust_loopback": True}},
    {"identity_mode": "mesh", "address": OUTSIDE, "tls": MUTUAL, "mesh": {"rules": [RULE]}},
    {
        "identity_mode": "mesh",
        "tls": MUTUAL,
        "mesh": {
            "rules": [
                {"certificate": "x", "scope": "user", "account": "acme", "user": "ada"},
                {"certificate": "x", "scope": "account", "account": "acme"},
                {"certificate": "x", "scope": "proxy"},
            ]
        },
    },
]


@pytest.mark.parametrize(("said", "settings"), REFUSED)
def test_they_are_refused_by_name_and_without_the_keys(said: str, settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(overrides=settings)
    text = str(refused.value)
    assert text.startswith(said)
    assert KEY[:-1] not in text
    # Nor without the loader, as tests and embedders make them.
    with pytest.raises(ValidationError):
        Settings(**settings)


@pytest.mark.parametrize("settings", TAKEN)
def test_the_others_are_taken(settings: dict[str, Any]) -> None:
    taken = load_settings(overrides=settings)
    assert KEY not in repr(taken) and OTHER not in repr(taken)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(overrides={"identity_mode": "keys", "address": OUTSIDE, "admin_key": "short"})
    lines = str(refused.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["admin_key", "tls.certificate"]


def test_they_come_from_the_environment_and_files_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUNEKEEP_IDENTITY_MODE", "mesh")
    monkeypatch.setenv("RUNEKEEP_MESH__RULES", '[{"certificate": "x", "scope": "user"}]')
    with pytest.raises(SettingsError, match=r"mesh\.rules\.0 \(RUNEKEEP_MESH__RULES\): the scope user needs account"):
        load_settings()
    monkeypatch.delenv("RUNEKEEP_MESH__RULES")
    config = tmp_path / "settings.yaml"
    config.write_text("mesh:\n  trust_loopback: true\naddress: 0.0.0.0:1\n")
    with pytest.raises(SettingsError, match=r"mesh\.trust_loopback"):
        load_settings(config)
