"""The command that serves the studio."""

from typing import Annotated

import typer

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import Address, AsJson
from runekeep.cli.common.output import Output
from runekeep.cli.processes.extras import require_extras
from runekeep.cli.processes.listening import Names, TlsCert, TlsKey, make_announcer

DEFAULT_LISTEN = "127.0.0.1:7480"


def studio(
    address: Address = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where browsers call; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    name: Names = None,
    own_credentials: Annotated[
        bool,
        typer.Option(
            "--own-credentials",
            help="Act with RUNEKEEP_API_KEY or the client certificate, for whoever opens the printed link.",
        ),
    ] = False,
    operator: Annotated[
        bool, typer.Option("--operator", help="Also pages for operators, for those who log in with an admin key.")
    ] = False,
    operator_address: Annotated[
        str | None,
        typer.Option("--operator-address", metavar="HOST:PORT", help="Of AdminService, if it has its own address."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve pages that show what is remembered, and why. They need the extra `studio`: pip install 'runekeep[studio]'.

    It calls the server with the key of whoever logs in. It listens on a loopback address unless it has a certificate.
    """
    require_extras("runekeep studio", "studio")
    from runekeep.studio.running import run
    from runekeep.studio.settings import StudioSettings
    from runekeep.web.listening import ListenError, split_listen

    try:
        host, port = split_listen(listen)
        settings = StudioSettings(
            server=address,
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            names=tuple(name or ()),
            own_credentials=own_credentials,
            operator=operator,
            operator_server=operator_address,
        )
        run(settings, make_announcer(Output(as_json), "studio", "Studio"))
    except ListenError as error:
        fail(str(error), status=2)
