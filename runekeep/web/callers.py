"""Calls a Runekeep server with the credentials of a request. The process lends its own to nobody."""

from collections.abc import Mapping
from dataclasses import dataclass

from runekeep import AsyncClient
from runekeep.web.listening import Place

ACCOUNT_HEADER = "x-runekeep-account"
USER_HEADER = "x-runekeep-user"


@dataclass(frozen=True, slots=True)
class CallerPlace(Place):
    """`server` is an address as the client takes it; None is the client's default. `account` and `user` hold for
    requests that name none; None is the client's default."""

    server: str | None = None
    account: str | None = None
    user: str | None = None


def open_client(place: CallerPlace, headers: Mapping[str, str], key: str, timeout: float | None = None) -> AsyncClient:
    """Returns a client with the key of a request and the names in its headers. Raises ValueError for credentials that
    cannot be sent."""
    return AsyncClient(
        place.server,
        account=headers.get(ACCOUNT_HEADER) or place.account,
        user=headers.get(USER_HEADER) or place.user,
        api_key=key,
        # Empty, not None: None would take the certificate of this process.
        cert_file="",
        key_file="",
        timeout=timeout,
    )
