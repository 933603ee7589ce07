"""Reads the caller's ids from the metadata of a call."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache

from runekeep_schemas.documents.uris import IdKind, is_safe_id
from runekeep_server.protocol.errors import unauthenticated

ACCOUNT_KEY = "x-runekeep-account"
USER_KEY = "x-runekeep-user"

Metadata = Iterable[tuple[str, str | bytes]]

# Callers come back, so results are cached. Invalid ids may be as long as metadata can be, so the cache is small.
_is_safe_id = lru_cache(maxsize=1024)(is_safe_id)
_KINDS = {ACCOUNT_KEY: IdKind.ACCOUNT, USER_KEY: IdKind.USER}


def only_values(metadata: Metadata, keys: tuple[str, ...]) -> dict[str, str]:
    """Returns the values of those of `keys` that were sent. Raises ApiError UNAUTHENTICATED if a key has two different
    values."""
    found: dict[str, str] = {}
    for key, value in metadata:
        # With two values, a check of the first and a use of the last would disagree.
        if key in keys and isinstance(value, str) and found.setdefault(key, value) != value:
            raise unauthenticated(f"The metadata holds {key} twice, with different values", "Send it once.")
    return found


def named_id(found: Mapping[str, str], key: str) -> str | None:
    """Returns the account or user id under `key` (ACCOUNT_KEY, USER_KEY), or None if it was not sent. Raises ApiError
    UNAUTHENTICATED for an invalid id."""
    value = found.get(key)
    if value is None:
        return None
    kind = _KINDS[key]
    if not _is_safe_id(kind, value):
        raise unauthenticated(
            f"The metadata key {key} holds no {kind} id",
            "Use 1 to 128 ASCII letters, digits, dots, underscores and dashes that begin with a letter or digit"
            + (", but not memories, sessions, peers or skills." if kind is IdKind.USER else "."),
        )
    return value


_sent: ContextVar[Metadata] = ContextVar("sent")


def enter_metadata(metadata: Metadata) -> None:
    """Sets the metadata of the current call. gRPC would rebuild it every time a handler asks the context."""
    _sent.set(metadata)


def sent_metadata() -> Metadata:
    """Returns the metadata of the current call. Raises LookupError outside of a call."""
    return _sent.get()
