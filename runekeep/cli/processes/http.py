"""The command that serves the calls of users over HTTP with JSON."""

from pathlib import Path
from typing import Annotated

import typer

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import Address, AsJson
from runekeep.cli.common.output import Output
from runekeep.cli.processes.extras import require_extras


def http(
    address: Address = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 is a free one.")
    ] = "127.0.0.1:7483",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate in PEM, for addresses of a network.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key in PEM.")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", metavar="HOST", help="A name by which callers call; may be repeated.")
    ] = None,
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

    output = Output(as_json)

    def announce(url: str) -> None:
        if as_json:
            output.json({"event": "serving", "http": url})
        else:
            output.say(f"HTTP on {url}")

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
        run(settings, announce)
    except ValueError as error:
        fail(str(error), status=2)
