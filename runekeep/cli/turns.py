"""Commands about turns: what they said, and what agents are shown of it."""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import FAILED, Output, minute

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from runekeep.client.face import Client
    from runekeep.client.turn_results import (
        AudienceName,
        SubmittedTurn,
        Turn,
        TurnContext,
        TurnFingerprint,
        TurnSignal,
        TurnSummary,
    )

app = typer.Typer(no_args_is_help=True, help="What single turns of a conversation said, and what agents see of it.")

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")]
TurnId = Annotated[str, typer.Argument(metavar="TURN", help="Its id in the session.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most this many.")]
Wait = Annotated[bool, typer.Option("--wait", help="Follow the task to its end.")]

_KINDS = ("assertions", "exceptions", "facts", "assistant_signals")
_STYLES = {"assertions": "green", "exceptions": "red", "facts": "blue", "assistant_signals": "magenta"}


@app.command("list")
@calling
def list_(
    client: "Client",
    output: Output,
    session: SessionId,
    fingerprinted: Annotated[bool, typer.Option("--fingerprinted", help="Only those with a fingerprint.")] = False,
    limit: Limit = 50,
) -> None:
    """List the turns of a session, newest first."""
    found = list(islice(client.session(session).turns(fingerprinted_only=fingerprinted), limit))
    if output.as_json:
        output.json({"turns": found})
        return
    rows = [
        (
            turn["turn_id"],
            minute(turn["start_time"]),
            _in_brief(turn["fingerprint"]),
            turn["fingerprint"]["objective"] if turn["fingerprint"] else "",
        )
        for turn in found
    ]
    output.rows(("turn", "started", "holds", "objective"), rows, "No turns.")


@app.command()
@calling
def show(client: "Client", output: Output, session: SessionId, turn: TurnId) -> None:
    """Show what a turn said: its fingerprint and its summary."""
    found = client.session(session).get_turn(turn)
    if output.as_json:
        output.json(found)
    else:
        output.console.print(drawn_turn(found))


@app.command()
@calling
def context(
    client: "Client",
    output: Output,
    session: SessionId,
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The turn under way; it need not have messages yet.")],
    audience: Annotated[
        str, typer.Option("--audience", "-a", metavar="WHO", help="gate, reconciler, downstream or final_answer.")
    ] = "gate",
    last: Annotated[int, typer.Option("--last", min=0, max=20, help="Turns before this one; 0: 3.")] = 0,
    queries: Annotated[
        list[str] | None, typer.Option("--query", "-q", metavar="TEXT", help="Look for more turns; twice at most.")
    ] = None,
) -> None:
    """Print what an agent is shown before it acts."""
    word = cast("AudienceName", audience.replace("-", "_"))
    found = client.session(session).turn_context(turn, word, last_turns=last, queries=queries or [])
    if output.as_json:
        output.json(found)
        return
    _say_sections(output, found)
    if found["unanswered_queries"]:
        # Not on stdout: that is a prompt.
        typer.echo(f"not searched for: {'; '.join(found['unanswered_queries'])}", err=True)


@app.command()
@calling
def submit(
    client: "Client",
    output: Output,
    session: SessionId,
    turn: TurnId,
    fingerprint: Annotated[
        str, typer.Option("--fingerprint", metavar="FILE", help="JSON of a fingerprint; - reads standard input.")
    ] = "",
    summary: Annotated[
        str, typer.Option("--summary", metavar="FILE", help="JSON of a summary; - reads standard input.")
    ] = "",
    extract: Annotated[bool, typer.Option("--extract", help="Queue a task that finds out what is missing.")] = False,
    signals: Annotated[
        str, typer.Option("--signals", metavar="TEXT", help="Which promotions that task looks for, in words.")
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
    """Store what is known of a turn, merged with what is there, or have it found out.

    For example: echo '{"objective": "Plan a trip"}' | runekeep turn submit SESSION TURN --fingerprint -
    """
    if not (fingerprint or summary or extract):
        raise typer.BadParameter("give --fingerprint, --summary or --extract", param_hint="--fingerprint")
    if fingerprint == summary == "-":
        raise typer.BadParameter("only one of both comes from standard input", param_hint="--summary")
    of_task = {"--signals": signals, "--select": select, "--feedback": feedback, "--wait": wait}
    if not extract and any(of_task.values()):
        option = next(name for name, given in of_task.items() if given)
        raise typer.BadParameter("this option needs --extract", param_hint=option)
    if queries and not select:
        raise typer.BadParameter("only --select uses queries; add --select", param_hint="--query")
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
    if wait and submitted["task_id"]:
        _follow(client, output, submitted, session)
    elif output.as_json:
        output.json(submitted)
    else:
        output.console.print(drawn_turn(submitted["turn"]))
        if submitted["task_id"]:
            output.say(f"Follow it: runekeep task watch {submitted['task_id']}", "dim")


@app.command()
@calling
def artifacts(
    client: "Client",
    output: Output,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="For example turn:TURN; all must be there.")],
    session: Annotated[str, typer.Option("--session", metavar="ID", help="Only of this session.")] = "",
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
        head = Text.assemble((one["name"], "bold cyan"), (f"  {minute(one['said_time'])}", "dim"))
        output.console.print(head)
        output.say(one["session"], "dim")
        output.console.print(Text(" ".join(one["tags"]), style="yellow"))
        output.say(one["text"])
        if one["hosted_uri"]:
            output.say(one["hosted_uri"], "cyan")
    if not found:
        output.say("Nothing carries these tags.", "dim")


def read_json(file: str, option: str) -> dict[str, Any]:
    """A JSON object from a file, or from standard input for `-`."""
    try:
        found = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint=option) from error
    except ValueError as error:
        raise typer.BadParameter(f"{file} holds no JSON: {error}", param_hint=option) from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{file} holds no JSON object", param_hint=option)
    return found


def drawn_turn(turn: "Turn") -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    head = Text.assemble((turn["turn_id"], "bold cyan"), (f"  {minute(turn['start_time'])}", "dim"))
    if turn["messages"]:
        first, last = turn["messages"]["start_sequence"], turn["messages"]["end_sequence"]
        head.append(f"  messages {first} to {last}", style="dim")
    tree = Tree(head, guide_style="dim")
    fingerprint, summary = turn["fingerprint"], turn["summary"]
    if fingerprint:
        _add_fingerprint(tree, fingerprint)
    if summary:
        _add_summary(tree, summary)
    if not fingerprint and not summary:
        tree.add(Text("no fingerprint yet; `runekeep turn submit` stores one", style="dim"))
    return tree


def drawn_signal(signal: "TurnSignal") -> "Text":
    """`key = value (severity, scope=x, applies_to=y)`."""
    from rich.text import Text

    value = signal["value"] if isinstance(signal["value"], str) else json.dumps(signal["value"], ensure_ascii=False)
    strength: list[str] = [signal["severity"] or ""]
    strength += [f"{name}={signal[name]}" for name in ("scope", "applies_to") if signal[name]]
    return Text.assemble((signal["key"], "bold"), f" = {value} ", (f"({', '.join(strength)})", "dim"))


def _add_fingerprint(tree: "Tree", fingerprint: "TurnFingerprint") -> None:
    from rich.text import Text

    if fingerprint["conversation_title"]:
        tree.add(Text.assemble(("title  ", "dim"), fingerprint["conversation_title"]))
    tree.add(Text.assemble(("objective  ", "dim"), fingerprint["objective"] or "not known"))
    if fingerprint["topics"]:
        tree.add(Text.assemble(("topics  ", "dim"), ", ".join(fingerprint["topics"])))
    for kind in _KINDS:
        signals: list[TurnSignal] = fingerprint[kind]  # type: ignore[literal-required]  # its keys
        if signals:
            branch = tree.add(Text(kind.replace("_", " "), style=_STYLES[kind]))
            for signal in signals:
                branch.add(drawn_signal(signal))
    for query in fingerprint["ctx_retrieval_queries"]:
        where = f" in what the {query['target'].replace('_', ' ')} said" if query["target"] else ""
        tree.add(Text.assemble(("searched  ", "dim"), query["query"], (where, "dim")))


def _add_summary(tree: "Tree", summary: "TurnSummary") -> None:
    from rich.text import Text

    branch = tree.add(Text("summary", style="yellow"))
    for name, value in summary.items():
        text = "; ".join(value) if isinstance(value, list) else str(value)
        if text:
            branch.add(Text.assemble((f"{name.replace('_', ' ')}  ", "dim"), text))


def _in_brief(fingerprint: "TurnFingerprint | None") -> str:
    """`2A 1E 3F 1S`: how many assertions, exceptions, facts and assistant signals there are."""
    if fingerprint is None:
        return "no fingerprint"
    counts = zip("AEFS", (len(fingerprint[kind]) for kind in _KINDS), strict=True)  # type: ignore[literal-required]  # its keys
    return " ".join(f"{count}{letter}" for letter, count in counts if count) or "no signals"


def _say_sections(output: Output, found: "TurnContext") -> None:
    from rich.text import Text

    for place, section in enumerate(found["sections"]):
        body = section["text"].removeprefix(section["header"])
        output.say(Text.assemble("\n" if place else "", (section["header"], "bold cyan"), body))


def _follow(client: "Client", output: Output, submitted: "SubmittedTurn", session: str) -> None:
    from runekeep.cli.task_results import show_task
    from runekeep.cli.tasks import follow

    task = follow(client, output, submitted["task_id"], updates=False)
    turn = client.session(session).get_turn(submitted["turn"]["turn_id"])
    if output.as_json:
        output.json({**submitted, "turn": turn, "task": task})
    else:
        show_task(output, task)
        output.console.print(drawn_turn(turn))
    if task["status"] != "completed":
        raise typer.Exit(FAILED)
