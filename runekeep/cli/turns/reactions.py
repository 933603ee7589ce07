"""Commands about reactions to turns, and about assistant signals."""

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, cast

import typer

from runekeep.cli.common.formats import format_count, format_minute
from runekeep.cli.common.options import SessionId, client_command
from runekeep.cli.common.output import Output
from runekeep.cli.turns.rendering import render_signal
from runekeep.cli.turns.turns import Limit

if TYPE_CHECKING:
    from rich.text import Text

    from runekeep.client.sync_client import Client
    from runekeep.client.turns.results import Feedback, FeedbackCounts, ReactionName

_STYLES = {"ok": "green", "not_ok": "red", "neutral": "yellow"}
_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]


@client_command
def feedback(
    client: "Client",
    output: Output,
    session: SessionId,
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The turn it is about; optional with --machine.")] = "",
    reaction: Annotated[
        str | None, typer.Option("--reaction", "-r", metavar="WORD", help="ok, not_ok or neutral.")
    ] = None,
    text: Annotated[str, typer.Option("--text", help="Reaction in words.")] = "",
    machine: Annotated[
        bool, typer.Option("--machine", help="An agent read the reaction from a message of the user.")
    ] = False,
    confidence: Annotated[
        float | None, typer.Option("--confidence", min=0, max=1, help="With --machine: from 0.7 to 1; default: 1.")
    ] = None,
    from_turn: Annotated[
        str, typer.Option("--from-turn", metavar="TURN", help="With --machine: the turn in which the user said it.")
    ] = "",
    queries: Annotated[
        list[str] | None,
        typer.Option("--match", metavar="TEXT", help="With --machine: query that finds the turn; at most two."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the user's reaction.")] = False,
) -> None:
    """Store a reaction to a turn. The user's reaction replaces the earlier one; --clear removes it."""
    of_machines = {"--confidence": confidence is not None, "--from-turn": bool(from_turn), "--match": bool(queries)}
    handle = client.session(session)
    if clear:
        if not turn:
            raise typer.BadParameter("needs TURN", param_hint="--clear")
        for option, given in {"--reaction": reaction, "--text": text, "--machine": machine, **of_machines}.items():
            if given:
                raise typer.BadParameter("cannot be combined with --clear", param_hint=option)
        cleared = handle.clear_feedback(turn)
        if output.as_json:
            output.json({"cleared": cleared})
        else:
            output.say("Cleared." if cleared else "There was none.")
        return
    if not turn and not machine:
        raise typer.BadParameter("is required without --machine", param_hint="TURN")
    for option, given in of_machines.items():
        if given and not machine:
            raise typer.BadParameter("needs --machine", param_hint=option)
    stored = handle.feedback(
        turn,
        cast("ReactionName | None", reaction and reaction.replace("-", "_")),
        text,
        origin="machine" if machine else "user",
        confidence=1.0 if confidence is None else confidence,
        from_turn_id=from_turn,
        match_queries=queries or [],
    )
    if output.as_json:
        output.json(stored)
    else:
        output.say(_render_feedback(stored))


@client_command
def feedback_list(
    client: "Client",
    output: Output,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Id or URI; default: all sessions of the user.")
    ] = "",
    turns: Annotated[
        list[str] | None, typer.Option("--turn", "-t", metavar="TURN", help="Only about this turn; may repeat.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", formats=_TIMES, metavar="DATE", help="Only from this local time on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", formats=_TIMES, metavar="DATE", help="Only before this local time.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List reactions, newest first, and count them."""
    if turns and not session:
        raise typer.BadParameter("needs SESSION", param_hint="--turn")
    if session:
        handle = client.session(session)
        found = handle.list_feedback(turns or [], start_time=since, end_time=until, limit=limit)
    else:
        found = client.list_feedback(start_time=since, end_time=until, limit=limit)
    if output.as_json:
        output.json(found)
        return
    for one in found.feedback:
        output.say(_render_feedback(one))
    output.say(describe_counts(found.counts), "dim")


@client_command
def signals(
    client: "Client",
    output: Output,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY...", help="Only these keys, spelled as in tags: budget.cap is budget_cap."),
    ] = None,
    session: Annotated[str, typer.Option("--session", metavar="ID", help="Only this session.")] = "",
    limit: Limit = 50,
) -> None:
    """List what the assistant promoted, in all sessions or in one, newest first."""
    found = list(islice(client.assistant_signals(keys or [], session=session), limit))
    if output.as_json:
        output.json({"turns": found})
        return
    rows = [
        (format_minute(one.made_time), one.session.rsplit("/", 1)[-1], one.turn_id, render_signal(signal))
        for one in found
        for signal in one.signals
    ]
    output.rows(("when", "session", "turn", "signal"), rows, "The assistant promoted nothing.")


def describe_counts(counts: "FeedbackCounts") -> str:
    """Describes counts of reactions in a sentence."""
    return (
        f"{format_count(counts.total, 'reaction', 'reactions')}: {counts.user} by the user, "
        f"{counts.machine} by machines; {counts.ok} ok, {counts.not_ok} not ok, {counts.neutral} neutral"
    )


def _render_feedback(one: "Feedback") -> "Text":
    from rich.text import Text

    word = one.reaction or "none"
    text = Text.assemble(
        (word.replace("_", " "), f"bold {_STYLES.get(word, 'dim')}"),
        " on ",
        (one.turn_id, "cyan"),
        (f"  {format_minute(one.create_time)}, {one.origin}", "dim"),
    )
    if one.origin == "machine":
        text.append(f", {one.confidence:.2f}", style="dim")
        text.append(f", said in {one.from_turn_id}" if one.from_turn_id else "", style="dim")
    for line in (one.objective, one.text):
        text.append(f"\n     {line}" if line else "")
    return text
