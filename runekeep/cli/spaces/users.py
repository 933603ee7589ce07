"""Commands that copy and delete a user."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.confirmation import Yes, confirm
from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output
from runekeep.cli.spaces.transfer import describe_contents

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client

app = typer.Typer(no_args_is_help=True, help="A user with all data.")


@app.command()
@client_command
def delete(
    client: "Client",
    output: Output,
    name: Annotated[str, typer.Argument(metavar="USER", help="Name of the user you call for (--user), to confirm.")],
    yes: Yes = False,
) -> None:
    """Delete everything of a user: sessions, archives, memories with their history, tasks. You cannot undo this."""
    confirm(f"Delete everything of {name}?", yes=yes)
    deleted = client.delete_user(name)
    if output.as_json:
        output.json(deleted)
        return
    output.say(
        f"Deleted {format_count(deleted.sessions, 'session', 'sessions')}"
        f" and {format_count(deleted.memories, 'memory', 'memories')};"
        f" {format_count(deleted.cancelled_tasks, 'open task was', 'open tasks were')} cancelled."
    )


@app.command()
@client_command
def copy(
    client: "Client",
    output: Output,
    to: Annotated[str, typer.Argument(metavar="USER", help="Name of the new user, who must have no data.")],
) -> None:
    """Copy everything of the user that you call for (--user) to another user of the account.

    Your key must be for both users, such as one of the scope account.
    """
    copied = client.copy_user(to)
    if output.as_json:
        output.json(copied)
        return
    output.say(f"Copied to {to}: {describe_contents(copied.contents)}.")
