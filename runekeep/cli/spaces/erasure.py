"""Commands that erase data for good, and show receipts."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.confirmation import Yes, confirm
from runekeep.cli.common.formats import format_minute
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from runekeep.client.spaces.results import Erasure
    from runekeep.client.sync_client import Client

app = typer.Typer(no_args_is_help=True, help="Erase data for good, with a receipt.")

Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait", help="Wait until the erasure is verified; else only until nobody can read the data."
    ),
]

_STATES = {
    "removing": "Nobody can read it any more; points and blobs are being taken away",
    "purging": "All is taken away; store and index let go of what they keep of deleted data",
    "verified": "Verified: nothing was left",
}


@app.command()
@client_command
def user(
    client: "Client",
    output: Output,
    name: Annotated[str, typer.Argument(metavar="USER", help="Name of the user you call for (--user), to confirm.")],
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Erase everything of a user."""
    _confirm(yes, f"everything of {name}")
    _follow(client, output, client.erase(user=name), wait)


@app.command()
@client_command
def peer(
    client: "Client",
    output: Output,
    name: Annotated[str, typer.Argument(metavar="PEER", help="Id of the peer.")],
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Erase a peer: memories about it, its messages in all sessions, and what came from them."""
    _confirm(yes, f"the peer {name}, what it said in all sessions, and what came from that")
    _follow(client, output, client.erase(peer=name), wait)


@app.command()
@client_command
def session(
    client: "Client",
    output: Output,
    name: Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")],
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Erase a session and everything that came from it, including memories."""
    _confirm(yes, f"the session {name}, and what came from it")
    _follow(client, output, client.erase(session=name), wait)


@app.command()
@client_command
def message(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")],
    ids: Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Ids of messages.")],
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Erase single messages of a session and everything that came from them."""
    _confirm(yes, f"{', '.join(ids)} of {session}, and what came from that")
    _follow(client, output, client.erase(session=session, messages=ids), wait)


@app.command()
@client_command
def show(
    client: "Client",
    output: Output,
    erasure: Annotated[str, typer.Argument(metavar="ERASURE", help="Id of the erasure.")],
) -> None:
    """Show a receipt."""
    _receipt(output, client.get_erasure(erasure))


@app.command("list")
@client_command
def list_(client: "Client", output: Output) -> None:
    """List receipts, newest first."""
    found = list(client.erasures())
    if output.as_json:
        output.json({"erasures": found})
        return
    output.rows(
        ("erasure", "scope", "state", "asked for (UTC)"),
        ((one.erasure_id, one.scope, one.state, format_minute(one.create_time)[:16]) for one in found),
        "Nothing was erased.",
        whole="erasure",
    )


def _confirm(yes: bool, what: str) -> None:
    confirm(f"Erase {what}? There is no way back.", yes=yes)


def _follow(client: "Client", output: Output, erasure: "Erasure", wait: bool) -> None:
    if wait and erasure.state != "verified":
        if output.as_json:
            erasure = client.wait_erasure(erasure.erasure_id)
        else:
            output.say(f"{erasure.erasure_id}: asked for. {_STATES[erasure.state]}.", "dim")
            with output.console.status("Looking through what is left ..."):
                erasure = client.wait_erasure(erasure.erasure_id)
    _receipt(output, erasure)


def _receipt(output: Output, erasure: "Erasure") -> None:
    if output.as_json:
        output.json(erasure)
        return
    counts = {
        **{name.replace("_", " "): count for name, count in erasure.erased.to_dict().items()},
        "memories reverted": erasure.memories_reverted,
        "tasks cancelled or begun anew": erasure.cancelled_tasks,
    }
    output.say(f"Receipt {erasure.erasure_id} ({erasure.scope}), {format_minute(erasure.create_time)}")
    rows = [(name, f"{count:,}") for name, count in counts.items() if count]
    output.rows(("erased", "count"), rows, "There was nothing.", numbers=("count",))
    at = f", {format_minute(erasure.verify_time)}" if erasure.verify_time else ""
    output.say(f"{_STATES[erasure.state]}{at}.")
    for sentence in erasure.left_to_operator:
        output.say(f"Left to the operator: {sentence}", "yellow")
