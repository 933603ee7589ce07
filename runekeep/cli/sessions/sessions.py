"""Commands about sessions."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.errors import FAILED
from runekeep.cli.common.formats import format_count, format_minute
from runekeep.cli.common.options import SessionId, client_command
from runekeep.cli.common.output import Output
from runekeep.cli.sessions.messages import render_message
from runekeep.cli.sessions.settings import create, describe_auto_commit, show_policy, update

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client

app = typer.Typer(no_args_is_help=True, help="Sessions: messages and commits.")
app.command()(create)
app.command()(update)

Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of entries.")]


@app.command("list")
@client_command
def list_(client: "Client", output: Output, limit: Limit = 50) -> None:
    """List sessions, latest activity first."""
    sessions = list(islice(client.list_sessions(), limit))
    if output.as_json:
        output.json({"sessions": sessions})
        return
    rows = [
        (
            one.session_id,
            one.message_count,
            one.live_message_count,
            one.compression_index,
            format_minute(one.update_time),
        )
        for one in sessions
    ]
    nothing = "" if sessions else describe_empty_space(client) or "No sessions."
    output.rows(("session", "messages", "live", "commits", "last activity"), rows, nothing, stack=True)


@app.command()
@client_command
def show(client: "Client", output: Output, session: SessionId) -> None:
    """Show a session and its commits."""
    handle = client.get_session(session)
    info, archives = handle.info(), list(handle.archives())
    if output.as_json:
        output.json({**info.to_dict(), "archives": archives})
        return
    from rich.text import Text

    output.say(Text(info.uri, style="bold cyan"))
    if info.title:
        output.say(info.title, "bold")
    said = format_count(info.message_count, "message", "messages")
    tokens = format_count(info.live_tokens, "token", "tokens")
    output.say(f"{said}, {info.live_message_count} of them ({tokens}) not yet committed")
    if info.memory_policy:
        show_policy(output, info.memory_policy)
    if info.auto_commit:
        output.say(describe_auto_commit(info.auto_commit))
    if info.summary and info.summary.abstract:
        output.say(info.summary.abstract, "italic")
    rows = [(one.index, one.state, one.revision or "", one.task_id) for one in archives]
    output.rows(("commit", "state", "revision", "task"), rows, "No commits yet.", whole="task")


@app.command()
@client_command
def messages(
    client: "Client",
    output: Output,
    session: SessionId,
    everything: Annotated[bool, typer.Option("--all", help="Also show archived messages.")] = False,
    limit: Limit = 200,
) -> None:
    """Show the messages of a session that are not committed yet, or all, oldest first."""
    found = list(islice(client.get_session(session).messages("all" if everything else "live"), limit))
    if output.as_json:
        output.json({"messages": found})
        return
    for message in found:
        output.say(render_message(message))
    if not found:
        output.say("No messages." if everything else "No messages that are not committed; --all shows all.", "dim")


@app.command()
@client_command
def commit(
    client: "Client",
    output: Output,
    session: SessionId,
    keep: Annotated[int, typer.Option("--keep", min=0, help="Number of newest messages that stay live.")] = 0,
    peers: Annotated[bool, typer.Option("--peers", help="Also extract memories about peers.")] = False,
    priority: Annotated[
        int,
        typer.Option(
            "--priority", min=-100, max=100, help="Waiting commits of the account with a higher priority go first."
        ),
    ] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the extraction has ended.")] = False,
) -> None:
    """Archive the live messages of a session and queue their extraction."""
    policy = {"peer": {"enabled": True}} if peers else None
    result = client.get_session(session).commit(policy, keep, priority=priority)
    if wait and result.task_id:
        from runekeep.cli.tasks.results import show_task
        from runekeep.cli.tasks.tasks import follow

        task = follow(client, output, result.task_id, updates=False)
        if output.as_json:
            output.json({**result.to_dict(), "task": task})
        else:
            show_task(output, task)
        if task.status != "completed":
            raise typer.Exit(FAILED)
    elif output.as_json:
        output.json(result)
    elif result.status == "skipped":
        output.say("Nothing to commit.")
    else:
        output.say(f"Archived as {result.archive_uri}")
        output.say(f"Follow it: runekeep task watch {result.task_id}", "dim")


@app.command()
@client_command
def delete(client: "Client", output: Output, session: SessionId) -> None:
    """Delete a session with its messages and archives. Memories made from it stay."""
    cancelled = client.delete_session(session)
    if output.as_json:
        output.json({"deleted": session, "cancelled_tasks": cancelled})
    else:
        output.say(f"Deleted; {format_count(cancelled, 'open task was', 'open tasks were')} cancelled.")
