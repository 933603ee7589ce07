from collections.abc import Iterator

import pytest

from tests.unit.runekeep.server_double import ServerDouble


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerDouble]:
    for name in ("RUNEKEEP_ADDRESS", "RUNEKEEP_ACCOUNT", "RUNEKEEP_USER"):
        monkeypatch.delenv(name, raising=False)
    double = ServerDouble()
    yield double
    double.close()
