"""Commands about a user as a whole."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import Output, counted

if TYPE_CHECKING:
    from runekeep.client.face import Client

app = typer.Typer(no_args_is_help=True, help="A user with all that is remembered.")


@app.callback()
def users() -> None:
    """Makes a group of what would be a single command."""


@app.command()
@calling
def delete(
    client: "Client",
    output: Output,
    name: Annotated[str, typer.Argument(metavar="USER", help="The user in whose name you call (--user), once more.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete everything of a user: sessions, archives, memories with their history, tasks. There is no way back."""
    if not yes:
        # On stderr: with --json stdout holds the answer alone.
        typer.confirm(f"Delete everything of {name}?", abort=True, err=True)
    deleted = client.delete_user(name)
    if output.as_json:
        output.json(deleted)
        return
    output.say(
        f"Deleted {counted(deleted['sessions'], 'session', 'sessions')}"
        f" and {counted(deleted['memories'], 'memory', 'memories')};"
        f" {counted(deleted['cancelled_tasks'], 'open task was', 'open tasks were')} cancelled."
    )
