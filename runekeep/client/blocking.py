"""Makes blocking methods of coroutines and asynchronous generators."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from runekeep.client.event_loop_thread import event_loop_thread

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class BlockingWrapper(Generic[A_co]):
    """Holds an object whose methods are coroutines. Subclasses declare blocking versions of these methods."""

    def __init__(self, wrapped: A_co) -> None:
        self._wrapped = wrapped


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingWrapper[A], P], T]:
    """Returns a blocking version of a method, with the same arguments, result and docstring."""

    @wraps(method)
    def call(wrapper: BlockingWrapper[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return event_loop_thread().run(method(wrapper._wrapped, *args, **kwargs))

    return call


def blocking_iter(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[BlockingWrapper[A], P], Iterator[T]]:
    """Returns a version of a method that yields as a plain iterator. It closes the asynchronous generator when the
    iterator is exhausted, closed or dropped."""

    @wraps(method)
    def call(wrapper: BlockingWrapper[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        source = method(wrapper._wrapped, *args, **kwargs)
        end = object()

        async def step() -> T | object:
            return await anext(source, end)

        try:
            while (item := event_loop_thread().run(step())) is not end:
                yield item  # type: ignore[misc]  # not `end`, so a T
        finally:
            event_loop_thread().run(source.aclose())

    return call
