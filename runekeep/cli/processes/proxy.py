"""The command that serves the proxy in front of a model's API."""

from typing import Annotated

import typer

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import Account, Address, AsJson, User
from runekeep.cli.common.output import Output
from runekeep.cli.processes.extras import require_extras
from runekeep.cli.processes.listening import Names, TlsCert, TlsKey, make_announcer

DEFAULT_LISTEN = "127.0.0.1:7482"


def proxy(
    upstream: Annotated[
        str, typer.Option("--upstream", metavar="URL", help="The model's API, such as https://api.openai.com.")
    ],
    address: Address = None,
    user: User = None,
    account: Account = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients call; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    name: Names = None,
    stable_budget: Annotated[
        int, typer.Option("--stable-budget", min=1, help="Maximum tokens of profile, preferences and plans.")
    ] = 500,
    budget: Annotated[
        int, typer.Option("--token-budget", "-b", min=1, help="Maximum tokens of what is relevant to a request.")
    ] = 1000,
    as_json: AsJson = False,
) -> None:
    """Serve a proxy in front of an OpenAI- or Anthropic-compatible API that adds memory to requests and remembers what
    was said. It needs the extra `proxy`: pip install 'runekeep[proxy]'.

    The headers x-runekeep-user, x-runekeep-session and x-runekeep-key of a request choose user, session and key. While
    memory is unavailable, requests reach the model without it, and the response header x-runekeep-memory says so.
    """
    require_extras("runekeep proxy", "proxy")
    from runekeep.proxy.running import run
    from runekeep.proxy.settings import ProxySettings
    from runekeep.web.listening import split_listen

    try:
        host, port = split_listen(listen)
        settings = ProxySettings(
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            upstream=upstream,
            server=address,
            account=account,
            user=user,
            names=tuple(name or ()),
            stable_budget=stable_budget,
            query_budget=budget,
        )
        run(settings, make_announcer(Output(as_json), "proxy", f"Proxy for {upstream}"))
    except ValueError as error:
        fail(str(error), status=2)
