"""The command that serves memory over the Model Context Protocol."""

from typing import Annotated

import typer

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import Account, Address, AsJson, User
from runekeep.cli.common.output import Output
from runekeep.cli.processes.extras import require_extras
from runekeep.cli.processes.listening import Names, TlsCert, TlsKey, make_announcer


def mcp(
    address: Address = None,
    user: User = None,
    account: Account = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Serve streamable HTTP there, not stdio; 0 is a free port."),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    name: Names = None,
    budget: Annotated[int, typer.Option("--token-budget", "-b", min=200, help="Maximum tokens of one result.")] = 2000,
    destructive: Annotated[
        bool, typer.Option("--destructive", help="Also offer tools that delete: memory_forget.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve memory as tools over MCP: stdio, or with --listen streamable HTTP. It needs the extra `mcp`: pip install
    'runekeep[mcp]'.

    Over stdio it calls the server with the key of the environment. Over HTTP every request brings its own key, as
    `Authorization: Bearer KEY`, which is passed on and not stored.
    """
    require_extras("runekeep mcp", "mcp")
    from runekeep.mcp.running import run_http, run_stdio
    from runekeep.mcp.settings import McpSettings
    from runekeep.web.listening import split_listen

    try:
        host, port = split_listen(listen) if listen else ("127.0.0.1", 0)
        settings = McpSettings(
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            server=address,
            account=account,
            user=user,
            names=tuple(name or ()),
            token_budget=budget,
            destructive=destructive,
        )
        if listen:
            run_http(settings, make_announcer(Output(as_json), "mcp", "MCP"))
        else:
            run_stdio(settings)
    except ValueError as error:
        fail(str(error), status=2)
