"""What the server and the process that holds Qdrant Edge say to each other, over that process's standard streams.

A frame is four bytes, the length of what follows in little-endian order, and a pickled tuple. Pickle is safe here:
both ends are our own code, joined by an anonymous pipe that nobody else can write to.
"""

import pickle
from typing import Any, NamedTuple

from storage.errors import DeadlinePassed
from storage.index.base import IndexMismatch, IndexUnavailable

HEADER_SIZE = 4


class Request(NamedTuple):
    """A call of the engine's method `operation`. `number` comes back with the answer. `until`: when nobody waits for it
    any more, on the clock `time.monotonic`, which both ends share; None: never."""

    number: int
    operation: str
    arguments: tuple[Any, ...]
    until: float | None = None


class Answer(NamedTuple):
    """The result of a call, or the name and message of what it raised."""

    number: int
    result: Any
    error: tuple[str, str] | None


_ERRORS: dict[str, type[Exception]] = {
    "DeadlinePassed": DeadlinePassed,
    "IndexMismatch": IndexMismatch,
    "IndexUnavailable": IndexUnavailable,
    "ValueError": ValueError,
}


def error_of(error: Exception) -> tuple[str, str]:
    """An exception as an answer carries it."""
    name = type(error).__name__
    return (name, str(error)) if name in _ERRORS else ("IndexUnavailable", f"{name}: {error}")


def exception_of(error: tuple[str, str]) -> Exception:
    """The exception that an answer carries."""
    name, message = error
    return _ERRORS[name](message)


def pack(message: Request | Answer) -> bytes:
    """A message as a frame."""
    body = pickle.dumps(tuple(message), protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(HEADER_SIZE, "little") + body


def body_size(header: bytes) -> int:
    """How many bytes follow a frame's header."""
    return int.from_bytes(header, "little")


def request_of(body: bytes) -> Request:
    """The request in a frame's body."""
    return Request(*pickle.loads(body))


def answer_of(body: bytes) -> Answer:
    """The answer in a frame's body."""
    return Answer(*pickle.loads(body))
