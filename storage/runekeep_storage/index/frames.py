"""The messages between the server and the process that runs Qdrant Edge, sent over that process's standard streams.

A frame is the length of its body, four bytes in little-endian order, and the body, a pickled tuple. Pickle is safe
here: both ends are our own code, joined by an anonymous pipe that nobody else can write to.
"""

import pickle
from typing import Any, NamedTuple

from runekeep_storage.errors import DeadlinePassed
from runekeep_storage.index.base import DatatypeMismatch, IndexMismatch, IndexUnavailable

HEADER_SIZE = 4


class Request(NamedTuple):
    """A call of the engine's method `operation`. `number` comes back with the answer. `until`: when nobody waits for
    the answer any more, on the clock `time.monotonic`, which both ends share; None: never."""

    number: int
    operation: str
    arguments: tuple[Any, ...]
    until: float | None = None


class Answer(NamedTuple):
    """The result of a call, or the name and message of the exception that it raised."""

    number: int
    result: Any
    error: tuple[str, str] | None


_ERRORS: dict[str, type[Exception]] = {
    "DatatypeMismatch": DatatypeMismatch,
    "DeadlinePassed": DeadlinePassed,
    "IndexMismatch": IndexMismatch,
    "IndexUnavailable": IndexUnavailable,
    "ValueError": ValueError,
}


def error_of(error: Exception) -> tuple[str, str]:
    """Returns an exception in the form that an answer carries."""
    name = type(error).__name__
    return (name, str(error)) if name in _ERRORS else ("IndexUnavailable", f"{name}: {error}")


def exception_of(error: tuple[str, str]) -> Exception:
    """Returns the exception that an answer carries."""
    name, message = error
    return _ERRORS[name](message)


def pack(message: Request | Answer) -> bytes:
    """Returns a message as a frame."""
    body = pickle.dumps(tuple(message), protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(HEADER_SIZE, "little") + body


def body_size(header: bytes) -> int:
    """Returns the length of a frame's body in bytes."""
    return int.from_bytes(header, "little")


def request_of(body: bytes) -> Request:
    """Returns the request in a frame's body."""
    return Request(*pickle.loads(body))


def answer_of(body: bytes) -> Answer:
    """Returns the answer in a frame's body."""
    return Answer(*pickle.loads(body))
