"""An event loop in its own thread, for callers that block.

A channel of grpc.aio belongs to one loop, so all blocking clients of a process share this one.
"""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="runekeep-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine. An interrupt cancels the coroutine, so that no call continues unseen.

        Raises RuntimeError on the event loop's own thread.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking client cannot be called on its own event loop; use AsyncClient there")
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


_lock = threading.Lock()
_thread: EventLoopThread | None = None


def event_loop_thread() -> EventLoopThread:
    """Returns the thread of this process. The first call starts it."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = EventLoopThread()
            atexit.register(_thread.stop)
        return _thread
