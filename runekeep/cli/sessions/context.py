"""The command that shows the context of a session."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import SessionId, client_command
from runekeep.cli.common.output import Output
from runekeep.cli.sessions.messages import render_message

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client


@client_command
def context(
    client: "Client",
    output: Output,
    session: SessionId,
    token_budget: Annotated[int, typer.Option("--token-budget", "-b", min=1, help="Maximum number of tokens.")] = 8000,
) -> None:
    """Show what a model needs to continue a conversation: overview, archived messages, live messages."""
    found = client.get_session(session).context(token_budget)
    if output.as_json:
        output.json(found)
        return
    if found.overview:
        output.say(found.overview_uri, "bold cyan")
        output.say(found.overview)
    for title, messages in (("Archived, not extracted yet", found.pending), ("Live", found.live)):
        if messages:
            output.say(title, "bold")
        for message in messages:
            output.say(render_message(message))
    output.say(format_count(found.tokens, "token", "tokens"), "dim")
    if found.omitted_messages:
        output.say(f"No room for {format_count(found.omitted_messages, 'older message', 'older messages')}.", "yellow")
    if found.overview_omitted:
        output.say(f"No room for the overview: {found.overview_uri}", "yellow")
