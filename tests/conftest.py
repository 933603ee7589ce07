"""What suites of every kind share."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for all tests, started by the first that asks; fails where there is no PostgreSQL."""
    server = PostgresServer().start()
    yield server
    server.stop()
