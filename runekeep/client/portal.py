"""One event loop in a thread of its own, for callers that block.

A channel of grpc.aio belongs to one loop, so all blocking clients of a process share this one.
"""

import asyncio
import atexit
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class Portal:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="runekeep-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Waits for a coroutine. An interrupt cancels it, so that no call goes on unseen."""
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
_portal: Portal | None = None


def portal() -> Portal:
    """The portal of this process, made when first asked for."""
    global _portal
    with _lock:
        if _portal is None:
            _portal = Portal()
            atexit.register(_portal.stop)
        return _portal


class Face(Generic[A_co]):
    """Blocking stand-in for an object whose methods are coroutines; also for what that object inherits."""

    def __init__(self, behind: A_co) -> None:
        self._behind = behind


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Face[A], P], T]:
    """The same method for a Face: same arguments, same result, same docstring; it waits."""

    @wraps(method)
    def call(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return portal().run(method(face._behind, *args, **kwargs))

    return call


def blocking_iter(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Face[A], P], Iterator[T]]:
    """The same for a method that yields. The source is closed when the iterator is exhausted, closed or dropped."""

    @wraps(method)
    def call(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        source = method(face._behind, *args, **kwargs)
        end = object()

        async def step() -> T | object:
            return await anext(source, end)

        try:
            while (item := portal().run(step())) is not end:
                yield item  # type: ignore[misc]  # not `end`, so a T
        finally:
            portal().run(source.aclose())

    return call
