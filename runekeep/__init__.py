"""Runekeep: durable, transactional session memory for fleets of AI agents, over gRPC.

The public names are loaded when they are first used, so that importing the generated stubs (`runekeep.v1`) or asking
the command line for help does not pay for the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runekeep.client.async_client import AsyncClient as AsyncClient
    from runekeep.client.connection.errors import AbortedError as AbortedError
    from runekeep.client.connection.errors import AccessDeniedError as AccessDeniedError
    from runekeep.client.connection.errors import AlreadyExistsError as AlreadyExistsError
    from runekeep.client.connection.errors import DeadlineExceededError as DeadlineExceededError
    from runekeep.client.connection.errors import FailedPreconditionError as FailedPreconditionError
    from runekeep.client.connection.errors import FieldViolation as FieldViolation
    from runekeep.client.connection.errors import InvalidArgumentError as InvalidArgumentError
    from runekeep.client.connection.errors import NotFoundError as NotFoundError
    from runekeep.client.connection.errors import ResourceExhaustedError as ResourceExhaustedError
    from runekeep.client.connection.errors import RunekeepError as RunekeepError
    from runekeep.client.connection.errors import TlsError as TlsError
    from runekeep.client.connection.errors import UnavailableError as UnavailableError
    from runekeep.client.memories.changes import DeleteMemory as DeleteMemory
    from runekeep.client.memories.changes import EditMemory as EditMemory
    from runekeep.client.memories.changes import PutMemory as PutMemory
    from runekeep.client.memories.changes import Replace as Replace
    from runekeep.client.sessions.messages import ContextPart as ContextPart
    from runekeep.client.sessions.messages import ImagePart as ImagePart
    from runekeep.client.sessions.messages import Message as Message
    from runekeep.client.sessions.messages import Part as Part
    from runekeep.client.sessions.messages import TextPart as TextPart
    from runekeep.client.sessions.messages import ToolPart as ToolPart
    from runekeep.client.sessions.session import AsyncSession as AsyncSession
    from runekeep.client.sessions.session import Session as Session
    from runekeep.client.sessions.writer import Append as Append
    from runekeep.client.sessions.writer import AsyncAppend as AsyncAppend
    from runekeep.client.sessions.writer import AsyncWriter as AsyncWriter
    from runekeep.client.sessions.writer import Writer as Writer
    from runekeep.client.sync_client import Client as Client

_NAMES = {
    "runekeep.client.async_client": ("AsyncClient",),
    "runekeep.client.sessions.session": ("AsyncSession", "Session"),
    "runekeep.client.sessions.writer": ("Append", "AsyncAppend", "AsyncWriter", "Writer"),
    "runekeep.client.memories.changes": ("DeleteMemory", "EditMemory", "PutMemory", "Replace"),
    "runekeep.client.sync_client": ("Client",),
    "runekeep.client.sessions.messages": ("ContextPart", "ImagePart", "Message", "Part", "TextPart", "ToolPart"),
    "runekeep.client.connection.errors": (
        "AbortedError",
        "AccessDeniedError",
        "AlreadyExistsError",
        "DeadlineExceededError",
        "FailedPreconditionError",
        "FieldViolation",
        "InvalidArgumentError",
        "NotFoundError",
        "ResourceExhaustedError",
        "RunekeepError",
        "TlsError",
        "UnavailableError",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
