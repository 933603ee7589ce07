"""Options that all commands share, and decorators that make commands which call the server.

Keys and certificates come from the environment only (RUNEKEEP_API_KEY, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE,
RUNEKEEP_KEY_FILE): `ps` shows the arguments of a command to every user of the machine, and shells keep them.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from runekeep.cli.common.errors import fail, fail_with
from runekeep.cli.common.not_found import explain_not_found
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from runekeep.client.admin import Admin
    from runekeep.client.sync_client import Client
    from runekeep.client.wire.arguments import Moment

P = ParamSpec("P")

_MAX_REVISION = 2**63 - 1

Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Server address; https://HOST:PORT uses TLS (RUNEKEEP_ADDRESS, else 127.0.0.1:7433).",
    ),
]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="User whose memory to use (RUNEKEEP_USER).")]
Account = Annotated[str | None, typer.Option("--account", metavar="ID", help="Account of the user (RUNEKEEP_ACCOUNT).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")]
AsOf = Annotated[
    str,
    typer.Option(
        "--as-of",
        metavar="REVISION|TIME",
        help="Show the state after this revision, or at this time; a time without a zone is local.",
    ),
]

_SHARED = {"address": Address, "user": User, "account": Account, "as_json": AsJson}
_OPERATORS = {"address": Address, "as_json": AsJson}
_ADVICE = {
    "PERMISSION_DENIED": "RUNEKEEP_API_KEY must hold a key of the scope admin.",
}
"""Advice for operators, by the gRPC code of the error."""


def parse_as_of(text: str, name: str = "--as-of") -> "Moment | None":
    """Returns the past state that an option names; None if it is empty."""
    if not text:
        return None
    if text.isdecimal():
        return parse_revision(text, name)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected the number of a revision, or a time", param_hint=name) from None


def parse_revision(text: str, name: str) -> int:
    """Returns the number of a revision. Raises typer.BadParameter if it is too large."""
    # Check the length first: int() raises ValueError above 4,300 digits.
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(_MAX_REVISION)) or int(digits) > _MAX_REVISION:
        raise typer.BadParameter("revision not found; run `runekeep history list` to see what exists", param_hint=name)
    return int(digits)


def client_command(command: Callable[Concatenate["Client", Output, P], None]) -> Callable[..., None]:
    """Makes a command of a function whose first parameters are a client and an output.

    The command gets --address, --user, --account and --json. An error of a call ends it with status 1.
    """
    return _command(command, _SHARED, lambda client: client)


def admin_command(command: Callable[Concatenate["Admin", Output, P], None]) -> Callable[..., None]:
    """As `client_command`, for commands of operators: the function gets the client's `admin`. Operators call for no
    user, so the command may have its own --user and --account."""
    return _command(command, _OPERATORS, lambda client: client.admin, _ADVICE)


def _command(
    command: Callable[..., None],
    options: Mapping[str, Any],
    called: Callable[["Client"], Any],
    advice: Mapping[str, str] | None = None,
) -> Callable[..., None]:
    def run(**given: Any) -> None:
        from runekeep.client.connection.errors import NotFoundError, RunekeepError
        from runekeep.client.sync_client import Client

        shared = {name: given.pop(name) for name in options}
        output = Output(shared.pop("as_json"))
        try:
            with Client(**shared) as client:
                try:
                    command(called(client), output, **given)
                except NotFoundError as error:
                    message, what_to_do = explain_not_found(client, error)
                    if not message:
                        raise
                    fail(message, what_to_do)
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
