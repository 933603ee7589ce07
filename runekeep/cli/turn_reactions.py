"""Commands about reactions to turns, and about what the assistant promoted in them."""

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, cast

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import Output, counted, minute
from runekeep.cli.turns import Limit, SessionId, drawn_signal

if TYPE_CHECKING:
    from rich.text import Text

    from runekeep.client.face import Client
    from runekeep.client.turn_results import Feedback, FeedbackCounts, ReactionName

_STYLES = {"ok": "green", "not_ok": "red", "neutral": "yellow"}
_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]


@calling
def feedback(
    client: "Client",
    output: Output,
    session: SessionId,
    turn: Annotated[
        str, typer.Argument(metavar="TURN", help="What it is about; with --machine it may be left out.")
    ] = "",
    reaction: Annotated[
        str | None, typer.Option("--reaction", "-r", metavar="WORD", help="ok, not_ok or neutral.")
    ] = None,
    text: Annotated[str, typer.Option("--text", help="In words.")] = "",
    machine: Annotated[bool, typer.Option("--machine", help="An agent read it out of what the user wrote.")] = False,
    confidence: Annotated[
        float | None, typer.Option("--confidence", min=0, max=1, help="With --machine; refused below 0.7. Else 1.")
    ] = None,
    said_in: Annotated[
        str, typer.Option("--from-turn", metavar="TURN", help="With --machine: the turn in which it was said.")
    ] = "",
    queries: Annotated[
        list[str] | None,
        typer.Option("--match", metavar="TEXT", help="With --machine: find the turn; twice at most."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the user's reaction.")] = False,
) -> None:
    """React to a turn. The user's reaction replaces the one before; with --clear it goes."""
    of_machines = {"--confidence": confidence is not None, "--from-turn": bool(said_in), "--match": bool(queries)}
    handle = client.session(session)
    if clear:
        if not turn:
            raise typer.BadParameter("it needs the turn", param_hint="--clear")
        for option, given in {"--reaction": reaction, "--text": text, "--machine": machine, **of_machines}.items():
            if given:
                raise typer.BadParameter("it does not go with --clear, which removes the reaction", param_hint=option)
        cleared = handle.clear_feedback(turn)
        if output.as_json:
            output.json({"cleared": cleared})
        else:
            output.say("Cleared." if cleared else "There was none.")
        return
    if not turn and not machine:
        raise typer.BadParameter("only with --machine it may be left out", param_hint="TURN")
    for option, given in of_machines.items():
        if given and not machine:
            raise typer.BadParameter("only with --machine", param_hint=option)
    stored = handle.feedback(
        turn,
        cast("ReactionName | None", reaction and reaction.replace("-", "_")),
        text,
        origin="machine" if machine else "user",
        confidence=1.0 if confidence is None else confidence,
        from_turn_id=said_in,
        match_queries=queries or [],
    )
    if output.as_json:
        output.json(stored)
    else:
        output.say(_drawn(stored))


@calling
def feedback_list(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI; left out: all of the user's.")] = "",
    turns: Annotated[
        list[str] | None, typer.Option("--turn", "-t", metavar="TURN", help="Only about this; may repeat.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", formats=_TIMES, metavar="DATE", help="Not before; local time.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", formats=_TIMES, metavar="DATE", help="Before; local time.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List reactions, newest first, and count them."""
    if turns and not session:
        raise typer.BadParameter("it needs the session of the turn", param_hint="--turn")
    if session:
        handle = client.session(session)
        found = handle.list_feedback(turns or [], start_time=since, end_time=until, limit=limit)
    else:
        found = client.list_feedback(start_time=since, end_time=until, limit=limit)
    if output.as_json:
        output.json(found)
        return
    for one in found["feedback"]:
        output.say(_drawn(one))
    output.say(said_counts(found["counts"]), "dim")


@calling
def signals(
    client: "Client",
    output: Output,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY...", help="As tags spell them: budget.cap is budget_cap.")
    ] = None,
    session: Annotated[str, typer.Option("--session", metavar="ID", help="Only of this session.")] = "",
    limit: Limit = 50,
) -> None:
    """List what the assistant promoted, in all sessions or in one, newest first."""
    found = list(islice(client.assistant_signals(keys or [], session=session), limit))
    if output.as_json:
        output.json({"turns": found})
        return
    rows = [
        (minute(one["made_time"]), one["session"].rsplit("/", 1)[-1], one["turn_id"], drawn_signal(signal))
        for one in found
        for signal in one["signals"]
    ]
    output.rows(("when", "session", "turn", "signal"), rows, "The assistant promoted nothing.")


def said_counts(counts: "FeedbackCounts") -> str:
    return (
        f"{counted(counts['total'], 'reaction', 'reactions')}: {counts['user']} by the user, "
        f"{counts['machine']} by machines; {counts['ok']} ok, {counts['not_ok']} not ok, {counts['neutral']} neutral"
    )


def _drawn(one: "Feedback") -> "Text":
    from rich.text import Text

    word = one["reaction"] or "none"
    text = Text.assemble(
        (word.replace("_", " "), f"bold {_STYLES.get(word, 'dim')}"),
        " on ",
        (one["turn_id"], "cyan"),
        (f"  {minute(one['create_time'])}, {one['origin']}", "dim"),
    )
    if one["origin"] == "machine":
        text.append(f", {one['confidence']:.2f}", style="dim")
        text.append(f", said in {one['from_turn_id']}" if one["from_turn_id"] else "", style="dim")
    for line in (one["objective"], one["text"]):
        text.append(f"\n     {line}" if line else "")
    return text
