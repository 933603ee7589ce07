"""Qdrant Edge without its process, for suites whose subject is what lies above the index.

The engine is the one that the process runs; what the process adds, and what becomes of it when it dies, the suites of
the index show. To start one takes longer than most tests of a store that can be searched.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runekeep_storage import deadline
from runekeep_storage.index.base import VectorDatatype
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.index.edge_child import EdgeChild
from runekeep_storage.index.edge_engine import EdgeEngine


class EdgeHere(EdgeIndex):
    """An `EdgeIndex` that calls its engine in a thread. No lock keeps a second one out of the directory."""

    async def _start_child(self) -> EdgeChild:
        self._child = _Engine(self._directory, self._datatype)
        return self._child


class _Engine(EdgeChild):
    """As a child that never dies: one call after the other, each to its end."""

    def __init__(self, directory: Path, datatype: VectorDatatype) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._engine = EdgeEngine(directory, datatype)
        self._thread = ThreadPoolExecutor(1, "index")
        self._closed = False

    @property
    def alive(self) -> bool:
        return True

    async def call(self, operation: str, *arguments: Any, timeout: float, until: float | None = None) -> Any:
        def work() -> Any:
            deadline.check(until)
            return getattr(self._engine, operation)(*arguments)

        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.close)
            self._thread.shutdown()
