"""Commands about turns: fingerprints, summaries, context for agents."""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from runekeep.cli.common.errors import FAILED
from runekeep.cli.common.formats import format_minute
from runekeep.cli.common.options import SessionId, client_command
from runekeep.cli.common.output import Output
from runekeep.cli.turns.rendering import render_turn, summarize_signals

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client
    from runekeep.client.turns.results import (
        AudienceName,
        SubmittedTurn,
        TurnContext,
    )

app = typer.Typer(no_args_is_help=True, help="Turn memory: what single turns said, and what agents see of it.")

TurnId = Annotated[str, typer.Argument(metavar="TURN", help="Id of the turn in the session.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of entries.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the task has ended.")]


@app.command("list")
@client_command
def list_(
    client: "Client",
    output: Output,
    session: SessionId,
    fingerprinted: Annotated[bool, typer.Option("--fingerprinted", help="Only turns with a fingerprint.")] = False,
    limit: Limit = 50,
) -> None:
    """List the turns of a session, newest first."""
    found = list(islice(client.session(session).turns(fingerprinted_only=fingerprinted), limit))
    if output.as_json:
        output.json({"turns": found})
        return
    rows = [
        (
            turn.turn_id,
            format_minute(turn.start_time),
            summarize_signals(turn.fingerprint),
            turn.fingerprint.objective if turn.fingerprint else "",
        )
        for turn in found
    ]
    output.rows(("turn", "started", "holds", "objective"), rows, "No turns.")


@app.command()
@client_command
def show(client: "Client", output: Output, session: SessionId, turn: TurnId) -> None:
    """Show the fingerprint and the summary of a turn."""
    found = client.session(session).get_turn(turn)
    if output.as_json:
        output.json(found)
    else:
        output.console.print(render_turn(found))


@app.command()
@client_command
def context(
    client: "Client",
    output: Output,
    session: SessionId,
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The current turn; it need not have messages yet.")],
    audience: Annotated[
        str, typer.Option("--audience", "-a", metavar="WHO", help="gate, reconciler, downstream or final_answer.")
    ] = "gate",
    last: Annotated[int, typer.Option("--last", min=0, max=20, help="Number of earlier turns; 0: 3.")] = 0,
    queries: Annotated[
        list[str] | None,
        typer.Option("--query", "-q", metavar="TEXT", help="Query that finds more turns; at most two."),
    ] = None,
) -> None:
    """Print what an agent sees before it acts."""
    word = cast("AudienceName", audience.replace("-", "_"))
    found = client.session(session).turn_context(turn, word, last_turns=last, queries=queries or [])
    if output.as_json:
        output.json(found)
        return
    _say_sections(output, found)
    if found.unanswered_queries:
        # Not on stdout, which is a prompt.
        typer.echo(f"not searched for: {'; '.join(found.unanswered_queries)}", err=True)


@app.command()
@client_command
def submit(
    client: "Client",
    output: Output,
    session: SessionId,
    turn: TurnId,
    fingerprint: Annotated[
        str,
        typer.Option("--fingerprint", metavar="FILE", help="File with a fingerprint as JSON; - reads standard input."),
    ] = "",
    summary: Annotated[
        str, typer.Option("--summary", metavar="FILE", help="File with a summary as JSON; - reads standard input.")
    ] = "",
    extract: Annotated[bool, typer.Option("--extract", help="Queue a task that extracts what is missing.")] = False,
    signals: Annotated[
        str, typer.Option("--signals", metavar="TEXT", help="Which promotions the task looks for, in words.")
    ] = "",
    select: Annotated[
        bool, typer.Option("--select", help="The task also selects the earlier turns that matter now.")
    ] = False,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="The task also stores the user's reactions to earlier answers.")
    ] = False,
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--query", "-q", metavar="TEXT", help="Also select from turns that match this query; at most two."
        ),
    ] = None,
    wait: Wait = False,
) -> None:
    """Store a fingerprint or a summary of a turn, merged with the stored one, or have them extracted.

    For example: echo '{"objective": "Plan a trip"}' | runekeep turn submit SESSION TURN --fingerprint -
    """
    if not (fingerprint or summary or extract):
        raise typer.BadParameter("give --fingerprint, --summary or --extract", param_hint="--fingerprint")
    if fingerprint == summary == "-":
        raise typer.BadParameter("only one of them can come from standard input", param_hint="--summary")
    of_task = {"--signals": signals, "--select": select, "--feedback": feedback, "--wait": wait}
    if not extract and any(of_task.values()):
        option = next(name for name, given in of_task.items() if given)
        raise typer.BadParameter("needs --extract", param_hint=option)
    if queries and not select:
        raise typer.BadParameter("needs --select", param_hint="--query")
    handle = client.session(session)
    submitted = handle.submit_turn(
        turn,
        fingerprint=read_json(fingerprint, "--fingerprint") if fingerprint else None,
        summary=read_json(summary, "--summary") if summary else None,
        extract=extract,
        assistant_signal_spec=signals,
        extract_selection=select,
        extract_feedback=feedback,
        queries=queries or (),
    )
    if wait and submitted.task_id:
        _follow(client, output, submitted, session)
    elif output.as_json:
        output.json(submitted)
    else:
        output.console.print(render_turn(submitted.turn))
        if submitted.task_id:
            output.say(f"Follow it: runekeep task watch {submitted.task_id}", "dim")


@app.command()
@client_command
def artifacts(
    client: "Client",
    output: Output,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags such as turn:TURN; all must match.")],
    session: Annotated[str, typer.Option("--session", metavar="ID", help="Only this session.")] = "",
    limit: Limit = 50,
) -> None:
    """List turn memory in its stored form by tags, newest first.

    For example: runekeep turn artifacts artifact:turn.log.reaction origin:user
    """
    found = list(islice(client.turn_artifacts(tags, session=session), limit))
    if output.as_json:
        output.json({"artifacts": found})
        return
    from rich.text import Text

    for one in found:
        head = Text.assemble((one.name, "bold cyan"), (f"  {format_minute(one.said_time)}", "dim"))
        output.console.print(head)
        output.say(one.session, "dim")
        output.console.print(Text(" ".join(one.tags), style="yellow"))
        output.say(one.text)
        if one.hosted_uri:
            output.say(one.hosted_uri, "cyan")
    if not found:
        output.say("Nothing has these tags.", "dim")


def read_json(file: str, option: str) -> dict[str, Any]:
    """Returns a JSON object from a file, or from standard input if it is `-`."""
    try:
        found = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint=option) from error
    except ValueError as error:
        raise typer.BadParameter(f"{file} is not valid JSON: {error}", param_hint=option) from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{file} is not a JSON object", param_hint=option)
    return found


def _say_sections(output: Output, found: "TurnContext") -> None:
    from rich.text import Text

    for place, section in enumerate(found.sections):
        body = section.text.removeprefix(section.header)
        output.say(Text.assemble("\n" if place else "", (section.header, "bold cyan"), body))


def _follow(client: "Client", output: Output, submitted: "SubmittedTurn", session: str) -> None:
    from runekeep.cli.tasks.results import show_task
    from runekeep.cli.tasks.tasks import follow

    task = follow(client, output, submitted.task_id, updates=False)
    turn = client.session(session).get_turn(submitted.turn.turn_id)
    if output.as_json:
        output.json({**submitted.to_dict(), "turn": turn, "task": task})
    else:
        show_task(output, task)
        output.console.print(render_turn(turn))
    if task.status != "completed":
        raise typer.Exit(FAILED)
