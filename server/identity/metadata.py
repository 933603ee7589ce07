"""What a call's metadata say of its caller."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache

from schemas.uris import IdKind, is_safe_id
from server.errors import unauthenticated

ACCOUNT_KEY = "x-runekeep-account"
USER_KEY = "x-runekeep-user"

Metadata = Iterable[tuple[str, str | bytes]]

# Who calls once calls again. What is no id may be as long as metadata can be, so few are remembered.
_is_safe_id = lru_cache(maxsize=1024)(is_safe_id)
_KINDS = {ACCOUNT_KEY: IdKind.ACCOUNT, USER_KEY: IdKind.USER}


def only_values(metadata: Metadata, keys: tuple[str, ...]) -> dict[str, str]:
    """Those of `keys` that there are, with their values. ApiError UNAUTHENTICATED where one has two."""
    found: dict[str, str] = {}
    for key, value in metadata:
        # Two values would let what checks the first and what uses the last disagree.
        if key in keys and isinstance(value, str) and found.setdefault(key, value) != value:
            raise unauthenticated(f"The metadata holds {key} twice, with different values", "Send it once.")
    return found


def named_id(found: Mapping[str, str], key: str) -> str | None:
    """The account or user that `key` (ACCOUNT_KEY, USER_KEY) names; None: it is not sent. ApiError UNAUTHENTICATED
    for what can be no such id."""
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
    """Has `metadata` be those of the call at hand. gRPC would put them together anew for whoever asks its context."""
    _sent.set(metadata)


def sent_metadata() -> Metadata:
    """What the caller sent with the call at hand. LookupError outside of one."""
    return _sent.get()
