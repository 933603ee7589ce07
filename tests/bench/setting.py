"""What a part measures with: a real server, the client process, and servers that do nothing, each gone when its block
ends, be it by a failure or by Ctrl-C."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import Progress, TaskID

from tests.acceptance.processes import Processes
from tests.bench.claims import durable_postgres
from tests.bench.figures import POSTGRES, SQLITE
from tests.bench.load import process
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.server_process import ServerProcess


@dataclass(frozen=True, slots=True)
class Running:
    """A server that serves. `server` may be stopped, killed and started again by who measures; `directory` holds its
    data (`server.data_dir`) and all logs; `store_url` is what its setting says."""

    address: str
    server: ServerProcess
    directory: Path
    store_url: str
    extractor_pids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Setting:
    """What every part is given. `stores`: of SQLITE and POSTGRES, those to measure. `repeats`: of every measurement.
    `quick`: with counts so small that the figures say nothing, to try the harness. `soak_minutes`: 0 for no soak.
    `directory`: for files of this run, gone behind it."""

    stores: Sequence[str]
    repeats: int
    progress: Progress
    directory: Path
    quick: bool = False
    soak_minutes: float = 0.0
    postgres: PostgresServer | None = field(default=None, repr=False)

    def count(self, many: int) -> int:
        """`many` of something, or a few of it in a quick run."""
        return min(many, max(many // 100, 2)) if self.quick else many

    @contextlib.contextmanager
    def bar(self, name: str, total: int) -> Iterator["Bar"]:
        task = self.progress.add_task(name, total=total)
        try:
            yield Bar(self.progress, task)
        finally:
            self.progress.remove_task(task)

    def store_url(self, store: str, directory: Path) -> str:
        """A new store without anything, tables too; of PostgreSQL one that forces every commit to disk."""
        if store == SQLITE:
            return f"sqlite:///{directory / 'runekeep.db'}"
        assert store == POSTGRES and self.postgres is not None, f"no {store} in this run"
        return self.postgres.url(self.postgres.create(EMPTY))

    @contextlib.asynccontextmanager
    async def server(
        self,
        store: str,
        embedder: str = "none",
        extractors: int = 0,
        *,
        settings: Mapping[str, str] | None = None,
        extractor_arguments: Sequence[str] = (),
        extractor_settings: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Running]:
        """A server as it is run, with its clocks as they are, on a new store; `settings` are environment variables.

        Fails when it does not end by itself in the end, or logged a fault. It is started and stopped without letting go
        of the loop, so that nothing that comes between leaves it behind.
        """
        with self.folder() as directory:
            url = self.store_url(store, directory)
            server = ServerProcess(
                directory / "data",
                {"RUNEKEEP_EMBEDDER": embedder, "RUNEKEEP_STORE_URL": url, **(settings or {})},
                quick=False,
            )
            fleet = Processes(directory, prepared=False)
            try:
                server.start()
                fleet.address = server.address
                pids = [
                    fleet.extractor(f"extractor-{number}", *extractor_arguments, **(extractor_settings or {})).pid
                    for number in range(extractors)
                ]
                yield Running(server.address, server, directory, url, pids)
                fleet.stop()
                if server.is_running:
                    server.stop()
            finally:
                fleet.stop()
                if server.is_running:
                    # With its children, which write to the folder.
                    server.kill()

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.directory) as folder:
            yield Path(folder)

    def load(self) -> contextlib.AbstractAsyncContextManager[process.Load]:
        """A client process."""
        return process.load()

    def append_streams(self) -> contextlib.AbstractAsyncContextManager[process.Streams]:
        """A client process whose clients keep streams of appends."""
        return process.append_streams()

    def echo(self) -> contextlib.AbstractAsyncContextManager[process.Echo]:
        """A bare server, in a process of its own."""
        return process.echo()

    @contextlib.asynccontextmanager
    async def inserts(self, store: str) -> AsyncIterator[process.Inserts]:
        """The store's own driver at work on a store of its own, in a process of its own."""
        with self.folder() as directory:
            async with process.inserts(self.store_url(store, directory)) as writer:
                yield writer

    def watchers(self) -> contextlib.AbstractAsyncContextManager[process.Watchers]:
        """A client process that follows streams."""
        return process.watchers()


@dataclass(frozen=True, slots=True)
class Bar:
    """A line of progress."""

    progress: Progress
    task: TaskID

    def step(self, by: float = 1) -> None:
        self.progress.advance(self.task, by)


@contextlib.contextmanager
def setting(stores: Sequence[str], repeats: int, progress: Progress, *, quick: bool, soak: float) -> Iterator[Setting]:
    """With a cluster of PostgreSQL where that is among the stores."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="runekeep-bench-"))
        postgres = durable_postgres() if POSTGRES in stores else None
        if postgres is not None:
            stack.callback(postgres.stop)
        yield Setting(stores, repeats, progress, Path(directory), quick, soak, postgres)
