"""Who may call an HTTP server: the names it can be called by, and whether it may listen on an address of a network."""

from collections.abc import Container, Mapping
from urllib.parse import urlsplit

from runekeep import AccessDeniedError, AsyncClient, RunekeepError
from runekeep.web.listening import ListenError, Place


class ServerUnreachableError(ListenError):
    """It is not known whether the server asks for keys."""


def called_names(place: Place) -> set[str]:
    """Returns the host names by which clients may call, in lower case and without brackets. A web page of
    another site can reach a loopback address only by a name that is not among them."""
    return {"127.0.0.1", "localhost", "::1", *(name.lower().strip("[]") for name in (place.host, *place.names))}


def host_name(url: str) -> str | None:
    """Returns the host of a URL, or of `//` and a `Host` header, as `called_names` has it; None for what has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_known_host(headers: Mapping[str, str], names: Container[str]) -> bool:
    """Returns whether a request calls by one of the names."""
    return host_name(f"//{headers.get('host', '')}") in names


def is_known_page(headers: Mapping[str, str], names: Container[str]) -> bool:
    """Returns whether a request calls by one of the names, and is none of a web page of another site. Such pages can
    reach a loopback address, also by a name of their own."""
    if not is_known_host(headers, names):
        return False
    origin = headers.get("origin")
    if origin is None:
        # Browsers send no Origin with the GET of an image or a link.
        return headers.get("sec-fetch-site") != "cross-site"
    return host_name(origin) in names


async def is_open(server: str | None) -> bool:
    """Returns whether the server takes callers without credentials. Raises RunekeepError when it does not answer."""
    async with AsyncClient(server, account="default", user="default", api_key="", cert_file="", key_file="") as probe:
        try:
            await probe.memory_types()
        except AccessDeniedError:
            return False
    return True


async def refuse_open_server(place: Place, server: str | None) -> None:
    """Raises ListenError if others could call from the network a server that takes callers without credentials, and
    ServerUnreachableError if the server cannot be asked."""
    if place.local:
        return
    try:
        open_to_all = await is_open(server)
    except RunekeepError as error:
        raise ServerUnreachableError(f"cannot ask the server whether it asks for keys: {error}") from error
    if open_to_all:
        raise ListenError(
            "the server is in development mode and trusts every name, so this may only listen on a loopback address"
        )
