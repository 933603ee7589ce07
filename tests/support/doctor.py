"""Checks of the doctor, one by one, without its program."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from runekeep.cli.doctor.server_checks import check_server
from runekeep_server.doctor.check import Check
from runekeep_server.settings import Settings, load_settings
from tests.support.server_process import ServerProcess

SECRET = "hidden-7f3a"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the settings of this process away."""
    for name in [name for name in os.environ if name.startswith(("RUNEKEEP_", "ANTHROPIC_", "OPENAI_"))]:
        monkeypatch.delenv(name)


def settings(**given: Any) -> Settings:
    return load_settings(None, {"embedder": "none", **given})


async def all_of(checks: "AsyncIterator[Check] | Iterator[Check]") -> dict[str, Check]:
    found = [one async for one in checks] if isinstance(checks, AsyncIterator) else list(checks)
    return {check.name: check for check in found}


def states(found: dict[str, Check]) -> dict[str, str]:
    return {name: check.state.value for name, check in found.items()}


async def server_checks(server: ServerProcess) -> dict[str, Any]:
    """What the doctor says of a running server, by check."""
    return {check["check"]: check for check in await check_server(server.address, expected=True)}
