"""Runekeep: durable, transactional session memory for fleets of AI agents, over gRPC.

The public names are loaded when they are first used, so that importing the generated stubs (`runekeep.v1`) or asking
the command line for help does not pay for the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runekeep.client.aio import AsyncClient as AsyncClient
    from runekeep.client.aio_session import AsyncSession as AsyncSession
    from runekeep.client.changes import DeleteMemory as DeleteMemory
    from runekeep.client.changes import EditMemory as EditMemory
    from runekeep.client.changes import PutMemory as PutMemory
    from runekeep.client.changes import Replace as Replace
    from runekeep.client.errors import AbortedError as AbortedError
    from runekeep.client.errors import AccessDeniedError as AccessDeniedError
    from runekeep.client.errors import AlreadyExistsError as AlreadyExistsError
    from runekeep.client.errors import DeadlineExceededError as DeadlineExceededError
    from runekeep.client.errors import FailedPreconditionError as FailedPreconditionError
    from runekeep.client.errors import FieldViolation as FieldViolation
    from runekeep.client.errors import InvalidArgumentError as InvalidArgumentError
    from runekeep.client.errors import NotFoundError as NotFoundError
    from runekeep.client.errors import ResourceExhaustedError as ResourceExhaustedError
    from runekeep.client.errors import RunekeepError as RunekeepError
    from runekeep.client.errors import TlsError as TlsError
    from runekeep.client.errors import UnavailableError as UnavailableError
    from runekeep.client.face import Client as Client
    from runekeep.client.face import Session as Session
    from runekeep.client.messages import ContextPart as ContextPart
    from runekeep.client.messages import ImagePart as ImagePart
    from runekeep.client.messages import Message as Message
    from runekeep.client.messages import Part as Part
    from runekeep.client.messages import TextPart as TextPart
    from runekeep.client.messages import ToolPart as ToolPart

_HOMES = {
    "runekeep.client.aio": ("AsyncClient",),
    "runekeep.client.aio_session": ("AsyncSession",),
    "runekeep.client.changes": ("DeleteMemory", "EditMemory", "PutMemory", "Replace"),
    "runekeep.client.face": ("Client", "Session"),
    "runekeep.client.messages": ("ContextPart", "ImagePart", "Message", "Part", "TextPart", "ToolPart"),
    "runekeep.client.errors": (
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
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
