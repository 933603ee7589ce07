"""What suites of every kind share."""

import gc
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support.index_process import IndexProcess
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from tests.doubles.qdrant import QdrantDouble

# A slow machine is no failure: no test asserts a time.
settings.register_profile("runekeep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("runekeep")

# With the values of all variables, as it is by default, to draw one exception holds up the loop for seconds, and the
# transactions that are open on it.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=True),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Restores the logging configuration after each test. A program called in this process changes it, and later tests
    read the output."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end: to look through them for garbage takes a third of a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and "postgres" in callspec.params.values() and item.get_closest_marker("postgres_long"):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for all tests, started by the first that asks; fails where there is no PostgreSQL."""
    server = PostgresServer().start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite store of the newest schema, to be copied: making a schema costs more than most tests."""
    # Here, since its libraries take long to import.
    from runekeep_storage.migrations.migrate import migrate_sqlite

    path = tmp_path_factory.mktemp("template") / "runekeep.db"
    migrate_sqlite(path)
    return path


@pytest.fixture
async def double(tmp_path: Path) -> AsyncIterator["QdrantDouble"]:
    """A Qdrant double that has a port and is away."""
    # Here, since its client takes long to import.
    from tests.doubles.qdrant import QdrantDouble

    double = QdrantDouble(tmp_path / "qdrant")
    await double.start()
    await double.stop()
    yield double
    await double.stop()


@pytest.fixture
def index_url(tmp_path: Path) -> Iterator[str]:
    """Of an empty index that several servers may share, in a process of its own."""
    process = IndexProcess(tmp_path / "qdrant").start()
    yield process.url
    process.stop()
