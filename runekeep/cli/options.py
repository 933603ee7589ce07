"""Options that every command which calls the server shares, and how such a command is made.

Keys and certificates are named by the environment alone (RUNEKEEP_API_KEY, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE,
RUNEKEEP_KEY_FILE): arguments of a command are shown to every user of the machine by `ps`, and kept by shells.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from runekeep.cli.output import Output, fail, fail_with

if TYPE_CHECKING:
    from runekeep.client.arguments import Moment
    from runekeep.client.face import Admin, Client

P = ParamSpec("P")

Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Server; over TLS https://HOST:PORT (RUNEKEEP_ADDRESS, else 127.0.0.1:7433).",
    ),
]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Whose memory (RUNEKEEP_USER).")]
Account = Annotated[str | None, typer.Option("--account", metavar="ID", help="Account of the user (RUNEKEEP_ACCOUNT).")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout and nothing else.")]

AsOf = Annotated[
    str, typer.Option("--as-of", metavar="REVISION|TIME", help="As it was then; a time without a zone is local.")
]

_SHARED = {"address": Address, "user": User, "account": Account, "as_json": AsJson}
_OPERATORS = {"address": Address, "as_json": AsJson}
_ADVICE = {
    "NOT_FOUND": "See what there is: `runekeep admin key list --include-ended`.",
    "PERMISSION_DENIED": "RUNEKEEP_API_KEY must hold a key of the scope admin.",
}
"""For operators, by gRPC code."""


def moment(text: str, name: str = "--as-of") -> "Moment | None":
    """What an option says of a state in the past; None for nothing."""
    if not text:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("it is the number of a revision, or a time", param_hint=name) from None


def calling(command: Callable[Concatenate["Client", Output, P], None]) -> Callable[..., None]:
    """Makes a command of a function that takes a client and an output before its own parameters.

    It gains --address, --user, --account and --json; an error of a call ends it with status 1.
    """
    return _command(command, _SHARED, lambda client: client)


def operating(command: Callable[Concatenate["Admin", Output, P], None]) -> Callable[..., None]:
    """As `calling`, for what operators do, in nobody's name: it takes the client's `admin`, and --user and --account
    are its own to give."""
    return _command(command, _OPERATORS, lambda client: client.admin, _ADVICE)


def _command(
    command: Callable[..., None],
    options: Mapping[str, Any],
    called: Callable[["Client"], Any],
    advice: Mapping[str, str] | None = None,
) -> Callable[..., None]:
    def run(**given: Any) -> None:
        from runekeep.client.errors import RunekeepError
        from runekeep.client.face import Client

        shared = {name: given.pop(name) for name in options}
        output = Output(shared.pop("as_json"))
        try:
            with Client(**shared) as client:
                command(called(client), output, **given)
        except RunekeepError as error:
            fail_with(error, advice)
        except ValueError as error:
            fail(str(error))

    own = list(inspect.signature(command).parameters.values())[2:]
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name == "as_json" else None,
            annotation=annotation,
        )
        for name, annotation in options.items()
    ]
    parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *shared]
    made: Any = run
    # Not functools.wraps: Typer would look through it, at the function without the shared options.
    made.__name__, made.__doc__ = command.__name__, command.__doc__
    made.__signature__ = inspect.Signature(parameters)
    made.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
