"""What state machines over a store share: a store for each example, an event loop for all, and how many there are."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from tests.support.storage.databases import Clock, NewStore

POSTGRES_SHARE = 4
"""Of so many examples PostgreSQL gets one: each makes a database there, and each statement is a message to a server."""
STEPS = 50


@pytest.fixture(params=[pytest.param(3, id="third"), pytest.param(1, id="whole", marks=pytest.mark.long)])
def share(request: pytest.FixtureRequest) -> int:
    """Of so many examples one is tried: all of them with the tests that take minutes."""
    return int(request.param)


class StoreMachine(RuleBasedStateMachine):
    """Its rules call the store; what they know of it beside is the model."""

    def __init__(self, new_store: NewStore, clock: Clock, runner: asyncio.Runner) -> None:
        super().__init__()
        self.clock = clock
        self.runner = runner
        self._stored = new_store()
        self.database = self._stored.connect()
        self.run(self.database.open())

    def teardown(self) -> None:
        self.run(self.database.close())
        self._stored.discard()

    def run(self, work: Awaitable[Any]) -> Any:
        async def waited() -> Any:
            return await work

        return self.runner.run(waited())

    def write(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return self.run(self.database.write(work, *arguments))

    def write_global(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return self.run(self.database.write_global(work, *arguments))

    def read(self, work: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        return self.run(self.database.read(work, *arguments, **named))

    def read_global(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return self.run(self.database.read_global(work, *arguments))


def hold_machine(
    machine: Callable[[asyncio.Runner], StoreMachine], new_store: NewStore, *, examples: int, runner: asyncio.Runner
) -> None:
    """Runs `machine(runner)`, a new one on a new store, for each example; `examples` is their number on SQLite."""
    on_sqlite = isinstance(new_store().connect(), SqliteDatabase)
    run_state_machine_as_test(
        lambda: machine(runner),
        settings=settings(
            max_examples=examples if on_sqlite else examples // POSTGRES_SHARE,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
