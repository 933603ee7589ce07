"""The embedded index: Qdrant Edge in one child process of the server.

Edge holds Python's interpreter lock during every call, so in the server's own process each search would block all other
callers. The child starts at the first call and again after it died.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import structlog

from runekeep_storage import deadline
from runekeep_storage.drivers.common import mark_file
from runekeep_storage.index import telemetry
from runekeep_storage.index.base import (
    IndexHits,
    IndexPoint,
    IndexQuery,
    IndexUnavailable,
    VectorDatatype,
    VectorSpace,
    check_dimension,
)
from runekeep_storage.index.edge_child import EdgeChild
from runekeep_storage.index.edge_upkeep import EdgeUpkeep

# Opening may wait for a predecessor's lock, and then reads the shard.
_OPEN_TIMEOUT_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.2
# An index that works again, for example because its disk does, is used again after about this long. A failed start
# takes a tenth of a second of processor time.
_MAX_PAUSE_SECONDS = 0.5
_CALM_SECONDS = 30.0

_log = structlog.get_logger(__name__)


class EdgeIndex:
    """A `VectorIndex` in a local directory. `datatype`: how it holds dense vectors. `timeout` is the deadline of a call
    in seconds.

    Only one server at a time: a second one gets IndexUnavailable after ten seconds.
    """

    def __init__(
        self, directory: Path, *, datatype: VectorDatatype = VectorDatatype.FLOAT32, timeout: float = 30.0
    ) -> None:
        self._directory = directory
        self._datatype = datatype
        self._timeout = timeout
        self._spaces: tuple[VectorSpace, ...] = ()
        self._id = ""
        self._child: EdgeChild | None = None
        self._starting: asyncio.Task[EdgeChild] | None = None
        self._close_starts = 0
        self._not_before = 0.0
        self._calm_after = 0.0
        self._closed = False
        self._upkeep = EdgeUpkeep(self._call)

    @property
    def child_pid(self) -> int | None:
        """The process id of the running child, None if there is none."""
        return self._child.pid if self._child is not None and self._child.alive else None

    async def open(self, space: VectorSpace, other: VectorSpace | None = None) -> str:
        spaces = (space, other) if other is not None else (space,)
        with telemetry.index_call("open"):
            child = await self._running_child()
            try:
                self._id = await child.call("open", *spaces, timeout=_OPEN_TIMEOUT_SECONDS)
            except BaseException:
                self._spaces = ()
                raise
        self._spaces = spaces
        self._upkeep.start()
        return self._id

    async def drop_vectors(self, model: str) -> None:
        await self._call("drop_vectors", model)

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        spaces = self._opened()
        for point in points:
            for model, vector in point.vectors.items():
                check_dimension(vector, model, spaces)
        if points:
            with telemetry.index_call("upsert"):
                await self._call("upsert", tuple(points))

    async def delete(self, ids: Sequence[str]) -> None:
        if ids:
            with telemetry.index_call("delete"):
                await self._call("delete", tuple(ids))

    async def delete_space(self, account: str, user: str) -> None:
        await self._call("delete_space", account, user)

    async def query(self, query: IndexQuery) -> IndexHits:
        check_dimension(query.dense, query.model, self._opened(), of_query=True)
        with telemetry.index_call("query"):
            hits: IndexHits = await self._call("query", query)
        return hits

    async def list_ids(self, account: str, user: str, *, after: str | None = None, limit: int = 1000) -> list[str]:
        ids: list[str] = await self._call("list_ids", account, user, after, limit)
        return ids

    async def count(self, account: str, user: str) -> int:
        return int(await self._call("count", account, user))

    async def count_all(self) -> int:
        return int(await self._call("count_all"))

    async def clear(self) -> None:
        self._spaces = ()
        child = await self._running_child()
        await child.call("clear", timeout=self._timeout)

    async def flush(self) -> None:
        await self._call("flush")

    async def purge(self) -> None:
        await self._upkeep.purge()

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        return ()

    @property
    def place(self) -> str:
        return str(self._directory)

    # In this process, not in the child: it needs no lock and no engine.
    async def read_mark(self) -> str:
        with _translated():
            return await asyncio.to_thread(mark_file.read_mark, self._directory)

    async def write_mark(self, text: str) -> bool:
        with _translated():
            return await asyncio.to_thread(mark_file.write_mark, self._directory, text)

    async def healthy(self) -> bool:
        try:
            await self.count_all()
        except IndexUnavailable as error:
            _log.warning("index_unhealthy", error=str(error))
            return False
        return True

    async def close(self) -> None:
        self._closed = True
        await self._upkeep.stop()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._child is not None:
            await self._child.close()

    def _opened(self) -> tuple[VectorSpace, ...]:
        if not self._spaces:
            raise IndexUnavailable("the index is not open")
        return self._spaces

    async def _call(self, operation: str, *arguments: Any, timeout: float | None = None) -> Any:
        self._opened()
        child = await self._running_child()
        return await child.call(
            operation, *arguments, timeout=self._timeout if timeout is None else timeout, until=deadline.until()
        )

    async def _running_child(self) -> EdgeChild:
        if self._closed:
            raise IndexUnavailable("the index is closed")
        if self._child is not None and self._child.alive:
            return self._child
        if self._starting is None:
            self._starting = asyncio.create_task(self._start_child(), name="index-start")
            self._starting.add_done_callback(self._started)
        # Shielded: the start serves all who wait for it, and must not end if the first of them is cancelled.
        return await asyncio.shield(self._starting)

    def _started(self, task: asyncio.Task[EdgeChild]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # The waiters have seen the error. Reading it here avoids the event loop's warning.

    async def _start_child(self) -> EdgeChild:
        if self._child is not None:
            _log.warning("index_process_lost", pid=self._child.pid)
            await self._child.close()
            self._child = None
        await self._pause()
        child = await EdgeChild.start(self._directory, self._datatype)
        if self._spaces:
            try:
                id: str = await child.call("open", *self._spaces, timeout=_OPEN_TIMEOUT_SECONDS)
            except BaseException:
                child.kill()
                await child.close()
                raise
            if id != self._id:
                # Callers that wrote to the old index must know before they write to this one.
                self._spaces, self._child = (), child
                raise IndexUnavailable("the index is another one than was opened")
        self._child = child
        return child

    async def _pause(self) -> None:
        """Delays a start that follows another too closely, so that a child that dies again and again does not use up
        the processor."""
        clock = asyncio.get_running_loop().time
        self._close_starts = self._close_starts + 1 if clock() < self._calm_after else 0
        await asyncio.sleep(max(0.0, self._not_before - clock()))
        pause = min(_FIRST_PAUSE_SECONDS * 2**self._close_starts, _MAX_PAUSE_SECONDS)
        self._not_before = clock() + pause
        self._calm_after = clock() + _CALM_SECONDS


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise IndexUnavailable(f"the mark of the index: {error.filename}: {error.strerror}") from error
