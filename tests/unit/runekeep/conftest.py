from collections.abc import Iterator

import pytest

from tests.unit.runekeep.cli.cli_answers import script_all
from tests.unit.runekeep.server_double import ServerDouble


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerDouble]:
    for name in ("RUNEKEEP_ADDRESS", "RUNEKEEP_ACCOUNT", "RUNEKEEP_USER"):
        monkeypatch.delenv(name, raising=False)
    double = ServerDouble()
    yield double
    double.close()


@pytest.fixture
def full(server: ServerDouble) -> ServerDouble:
    """A double with an answer for every call that a command makes, but for those about turns."""
    script_all(server)
    return server
