"""Commands that list, copy and delete users."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.confirmation import Yes, confirm
from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.errors import fail
from runekeep.cli.common.formats import format_count, format_minute
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output
from runekeep.cli.spaces.transfer import describe_contents

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client

app = typer.Typer(no_args_is_help=True, help="List, copy and delete users of the account.")


@app.command(name="list")
@client_command
def list_(
    client: "Client",
    output: Output,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only names that begin with this.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of users.")] = 100,
) -> None:
    """List the users of the account who have memories or sessions, by name.

    Your key must be for the whole account: of the scope account.
    """
    found = list(islice(client.users(prefix), limit + 1))
    users, more = found[:limit], len(found) > limit
    if output.as_json:
        output.json({"users": users, "more": more})
        return
    for user in users:
        output.say(f"{format_minute(user.create_time)}  {user.user}")
    if more:
        output.say(f"There are more: --limit shows more than {limit}.", "dim")
    if not users:
        output.say("No users.", "dim")


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
    to: Annotated[str, typer.Argument(metavar="USER", help="Name of the other user, who must have no data.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete everything of the other user first; asks for confirmation.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Copy everything of the user that you call for (--user) to another user of the account, on the server.

    All is copied or nothing. Your key must be for the whole account: of the scope account.
    """
    empty_notice = describe_empty_space(client)
    if replace:
        if empty_notice:
            fail(f"nothing was deleted or copied. {empty_notice}")
        confirm(f"Delete everything of {to} first?", yes=yes)
    copied = client.copy_user(to, replace=replace)
    if output.as_json:
        output.json(copied)
        return
    if empty_notice and not any(copied.contents.to_dict().values()):
        output.say(f"Copied nothing to {to}. {empty_notice}", "yellow")
        return
    output.say(f"Copied to {to}: {describe_contents(copied.contents)}.")
