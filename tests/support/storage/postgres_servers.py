"""What the suites of the PostgreSQL driver alone share."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from tests.support.postgres import PostgresServer

Servers = list[PostgresDatabase]


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    name = postgres_server.create()
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
async def servers(url: str) -> AsyncIterator[Servers]:
    """Two drivers on one database, with its clock."""
    made = [PostgresDatabase(url, readers=6) for _ in range(2)]
    await asyncio.gather(*(one.open() for one in made))
    yield made
    for one in made:
        await one.close()
