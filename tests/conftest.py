"""What suites of every kind share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.index_process import IndexProcess
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for all tests, started by the first that asks; fails where there is no PostgreSQL."""
    server = PostgresServer().start()
    yield server
    server.stop()


@pytest.fixture
def index_url(tmp_path: Path) -> Iterator[str]:
    """Of an empty index that several servers may share, in a process of its own."""
    process = IndexProcess(tmp_path / "qdrant").start()
    yield process.url
    process.stop()
