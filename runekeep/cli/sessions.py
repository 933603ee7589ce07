"""Commands about sessions."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import FAILED, Output, counted, minute
from runekeep.cli.session_rules import create, say_policy, told, update

if TYPE_CHECKING:
    from rich.text import Text

    from runekeep.client.face import Client
    from runekeep.client.messages import Message, Part

app = typer.Typer(no_args_is_help=True, help="Conversations: what was said and what was committed.")
app.command()(create)
app.command()(update)

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most this many.")]


@app.command("list")
@calling
def list_(client: "Client", output: Output, limit: Limit = 50) -> None:
    """List sessions, latest activity first."""
    sessions = list(islice(client.list_sessions(), limit))
    if output.as_json:
        output.json({"sessions": sessions})
        return
    rows = [
        (
            one["session_id"],
            one["message_count"],
            one["live_message_count"],
            one["compression_index"],
            minute(one["update_time"]),
        )
        for one in sessions
    ]
    output.rows(("session", "messages", "live", "commits", "last activity"), rows, "No sessions.")


@app.command()
@calling
def show(client: "Client", output: Output, session: SessionId) -> None:
    """Show how a session stands, with its commits."""
    handle = client.get_session(session)
    info, archives = handle.info(), list(handle.archives())
    if output.as_json:
        output.json({**info, "archives": archives})
        return
    from rich.text import Text

    output.say(Text(info["uri"], style="bold cyan"))
    if info["title"]:
        output.say(info["title"], "bold")
    said = counted(info["message_count"], "message", "messages")
    tokens = counted(info["live_tokens"], "token", "tokens")
    output.say(f"{said}, {info['live_message_count']} of them ({tokens}) not yet committed")
    if info["memory_policy"]:
        say_policy(output, info["memory_policy"])
    if info["auto_commit"]:
        output.say(told(info["auto_commit"]))
    if info["summary"] and info["summary"]["abstract"]:
        output.say(info["summary"]["abstract"], "italic")
    rows = [(one["index"], one["state"], one["revision"] or "", one["task_id"]) for one in archives]
    output.rows(("commit", "state", "revision", "task"), rows, "No commits yet.", whole="task")


@app.command()
@calling
def messages(
    client: "Client",
    output: Output,
    session: SessionId,
    everything: Annotated[bool, typer.Option("--all", help="Also the messages that are archived.")] = False,
    limit: Limit = 200,
) -> None:
    """Show the messages of a session, oldest first: those not yet committed, or all."""
    found = list(islice(client.get_session(session).messages("all" if everything else "live"), limit))
    if output.as_json:
        output.json({"messages": [message_as_json(message) for message in found]})
        return
    for message in found:
        output.say(drawn_message(message))
    if not found:
        output.say("No messages." if everything else "No messages that are not committed; --all shows all.", "dim")


@app.command()
@calling
def commit(
    client: "Client",
    output: Output,
    session: SessionId,
    keep: Annotated[int, typer.Option("--keep", min=0, help="This many of the newest messages stay live.")] = 0,
    peers: Annotated[bool, typer.Option("--peers", help="Also write memory about peers.")] = False,
    priority: Annotated[
        int,
        typer.Option("--priority", min=-100, max=100, help="Among the account's waiting commits, higher goes first."),
    ] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the extraction to its end.")] = False,
) -> None:
    """Archive the live messages of a session and queue their extraction."""
    policy = {"peer": {"enabled": True}} if peers else None
    result = client.get_session(session).commit(policy, keep, priority=priority)
    if wait and result["task_id"]:
        from runekeep.cli.task_results import show_task
        from runekeep.cli.tasks import follow

        task = follow(client, output, result["task_id"], updates=False)
        if output.as_json:
            output.json({**result, "task": task})
        else:
            show_task(output, task)
        if task["status"] != "completed":
            raise typer.Exit(FAILED)
    elif output.as_json:
        output.json(result)
    elif result["status"] == "skipped":
        output.say("Nothing to commit.")
    else:
        output.say(f"Archived as {result['archive_uri']}")
        output.say(f"Follow it: runekeep task watch {result['task_id']}", "dim")


@app.command()
@calling
def delete(client: "Client", output: Output, session: SessionId) -> None:
    """Delete a session with its messages and archives. Memories made from it stay."""
    cancelled = client.delete_session(session)
    if output.as_json:
        output.json({"deleted": session, "cancelled_tasks": cancelled})
    else:
        output.say(f"Deleted; {counted(cancelled, 'open task was', 'open tasks were')} cancelled.")


def message_as_json(message: "Message") -> dict[str, Any]:
    from dataclasses import asdict

    def part_as_json(part: "Part") -> dict[str, Any]:
        return {"type": type(part).__name__.removesuffix("Part").lower(), **asdict(part)}

    return {
        "sequence": message.sequence,
        "id": message.id,
        "role": message.role,
        "speaker": message.speaker,
        "peer_id": message.peer_id,
        "turn_id": message.turn_id,
        "created_at": message.created_at.isoformat() if message.created_at else None,
        "parts": [part_as_json(part) for part in message.parts],
    }


def drawn_message(message: "Message") -> "Text":
    from rich.text import Text

    from runekeep.client.messages import ContextPart, ImagePart, TextPart, ToolPart

    speaker = message.speaker or message.peer_id or message.role
    when = message.created_at.strftime("%Y-%m-%d %H:%M UTC") if message.created_at else ""
    text = Text.assemble(
        (f"{message.sequence:>4} ", "dim"),
        (speaker, "bold green" if message.role == "user" else "bold blue"),
        (f" {when}", "dim"),
    )
    for part in message.parts:
        text.append("\n     ")
        match part:
            case TextPart():
                text.append(part.text)
            case ImagePart():
                text.append(f"[image] {part.caption or part.url[:60]}", style="magenta")
            case ContextPart():
                text.append(f"[context] {part.uri}", style="cyan")
            case ToolPart():
                style = {"completed": "green", "error": "red"}.get(part.status, "yellow")
                took = "" if part.duration_ms is None else f", {part.duration_ms:g} ms"
                text.append(f"[{part.tool_name}: {part.status}{took}] {part.output[:200]}", style=style)
    return text
