"""The command that serves the calls of users over HTTP with JSON."""

import os
from typing import Annotated

import typer

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import Address, AsJson
from runekeep.cli.common.output import Output
from runekeep.cli.processes.extras import require_extras
from runekeep.cli.processes.listening import Names, TlsCert, TlsKey, make_announcer


def http(
    address: Address = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 is a free one.")
    ] = "127.0.0.1:7483",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    name: Names = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", metavar="ORIGIN", help="An origin whose web pages may call; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve the calls of users over HTTP: JSON for curl and browsers, by the Connect protocol. It needs the extra
    `http`: pip install 'runekeep[http]'.

    Every request brings its own key, as `Authorization: Bearer KEY`, which is passed on and not stored.
    /openapi.json describes the calls.
    """
    require_extras("runekeep http", "http")
    from runekeep.http_api.running import run
    from runekeep.http_api.settings import HttpSettings
    from runekeep.web.listening import split_listen

    try:
        host, port = split_listen(listen)
        settings = HttpSettings(
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            server=address,
            names=tuple(name or ()),
            origins=tuple(origin or ()),
        )
        run(settings, make_announcer(Output(as_json), "http", "HTTP", _example))
    except ValueError as error:
        fail(str(error), status=2)


def _example(url: str) -> str:
    """Returns a curl command for one call; it sends RUNEKEEP_API_KEY if that is set."""
    key = ' -H "authorization: Bearer $RUNEKEEP_API_KEY"' if os.environ.get("RUNEKEEP_API_KEY") else ""
    return f"curl {url}runekeep.v1.SessionService/ListSessions -H 'content-type: application/json'{key} -d '{{}}'"
