"""A running index process, as the server sees it: overlapping calls, each with a deadline."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from runekeep_common.child_processes import child_environment
from runekeep_storage.index.base import IndexUnavailable, VectorDatatype
from runekeep_storage.index.frames import (
    HEADER_SIZE,
    Answer,
    Request,
    answer_of,
    body_size,
    exception_of,
    pack,
)

_EXIT_PATIENCE_SECONDS = 10.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A call without an answer yet. `timer` ends the process if the answer is late."""

    answer: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class EdgeChild:
    """A child process and its unanswered calls. When it dies, they all fail with IndexUnavailable."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._inbox = process.stdin
        self._outbox = process.stdout
        self._pending: dict[int, _Pending] = {}
        self._numbers = 0
        self._reader = asyncio.create_task(self._read_answers(), name="index-answers")

    @classmethod
    async def start(cls, directory: Path, datatype: VectorDatatype) -> "EdgeChild":
        """Starts a process for a directory with vectors of that datatype. Raises IndexUnavailable if it cannot be
        started."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                # -P: modules of the working directory must not run, because this process can read what the server can
                # read.
                *("-P", "-m", "runekeep_storage.index.edge_process", str(directory), datatype),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=child_environment(),
            )
        except OSError as error:
            raise IndexUnavailable(f"the index process cannot be started: {error}") from error
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process can still answer calls."""
        # The pipe may break before the reader ends. Writing to a broken pipe is an error under uvloop.
        return not self._reader.done() and not self._inbox.is_closing()

    async def call(self, operation: str, *arguments: Any, timeout: float, until: float | None = None) -> Any:
        """Returns the result of an operation of `EdgeEngine`, or raises its error. The operation does not start after
        `until`, see `Request`.

        Raises IndexUnavailable if the process dies or does not answer within `timeout` seconds. A process that misses a
        deadline counts as stuck and is killed, so that the next call gets a fresh one, even if the caller has given up
        by then.
        """
        if not self.alive:
            raise IndexUnavailable("the index process has ended")
        self._numbers += 1
        number = self._numbers
        # Not drained: every caller waits for its answer anyway, and the reader notices when the process dies.
        self._inbox.write(pack(Request(number, operation, arguments, until)))
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._pending[number] = _Pending(answer, loop.call_later(timeout, self._stuck, number, operation, timeout))
        return await answer

    def _stuck(self, number: int, operation: str, seconds: float) -> None:
        """Kills the process, because a call was not answered in time."""
        _log.error("index_process_stuck", pid=self.pid, operation=operation, seconds=seconds)
        waiting = self._pending.pop(number)
        if not waiting.answer.done():
            waiting.answer.set_exception(IndexUnavailable(f"the index did not answer {operation} within {seconds:g} s"))
        self.kill()

    def kill(self) -> None:
        """Kills the process at once; acknowledged writes stay."""
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """Lets the process finish its requests, write everything to disk and end."""
        self._inbox.close()
        try:
            async with asyncio.timeout(_EXIT_PATIENCE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            _log.error("index_process_killed", pid=self.pid, reason="it did not end in time")
            self.kill()
            await self._process.wait()
        await asyncio.wait([self._reader])

    async def _read_answers(self) -> None:
        try:
            while True:
                header = await self._outbox.readexactly(HEADER_SIZE)
                self._settle(answer_of(await self._outbox.readexactly(body_size(header))))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass  # The process ended; the waiting calls fail below.
        finally:
            while self._pending:
                _, waiting = self._pending.popitem()
                waiting.timer.cancel()
                if not waiting.answer.done():
                    waiting.answer.set_exception(IndexUnavailable("the index process ended during a call"))

    def _settle(self, answer: Answer) -> None:
        waiting = self._pending.pop(answer.number, None)
        if waiting is None:
            return
        waiting.timer.cancel()
        # The caller was cancelled. Setting its result would raise.
        if waiting.answer.done():
            return
        if answer.error is None:
            waiting.answer.set_result(answer.result)
        else:
            waiting.answer.set_exception(exception_of(answer.error))
