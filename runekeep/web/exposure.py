"""Keeps a server that trusts every name from being reached through an address of a network."""

from runekeep import AccessDeniedError, AsyncClient, RunekeepError
from runekeep.web.listening import ListenError, Place


async def refuse_open_server(place: Place, server: str | None) -> None:
    """Raises ListenError if others could call from the network a server that takes callers without credentials."""
    if place.local:
        return
    async with AsyncClient(server, account="default", user="default", api_key="", cert_file="", key_file="") as probe:
        try:
            await probe.memory_types()
        except AccessDeniedError:
            return
        except RunekeepError as error:
            raise ListenError(f"cannot ask the server whether it asks for keys: {error}") from error
    raise ListenError(
        "the server is in development mode and trusts every name, so this may only listen on a loopback address"
    )
