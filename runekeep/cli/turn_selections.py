"""Command that chooses which turns later agents see."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import Output, fail
from runekeep.cli.turns import SessionId, read_json

if TYPE_CHECKING:
    from runekeep.client.face import Client, Session
    from runekeep.client.turn_results import TurnContext

_MOST_LAST = 20
_STAYS = "The selection stays as it is. `runekeep turn context SESSION TURN --audience reconciler` shows what there is."


@calling
def select(
    client: "Client",
    output: Output,
    session: SessionId,
    memories: Annotated[
        list[str] | None,
        typer.Option("--memory", "-m", metavar="TURN", help="Show the memory of this turn; may repeat."),
    ] = None,
    turns: Annotated[
        list[str] | None,
        typer.Option("--turn", "-t", metavar="TURN", help="Show this turn as a prior turn; may repeat."),
    ] = None,
    buckets: Annotated[
        list[str] | None, typer.Option("--bucket", "-b", metavar="ID", help="Show the card of this bucket; may repeat.")
    ] = None,
    shown: Annotated[
        str,
        typer.Option("--context", metavar="FILE", help="What `turn context --json` printed, chosen from; - for stdin."),
    ] = "",
) -> None:
    """Choose which turns later agents see; it takes the place of the choice before, also when nothing is named.

    Where nothing of what is named was offered, nothing is stored.
    """
    handle = client.session(session)
    of_turns, of_buckets = [*(memories or []), *(turns or [])], buckets or []
    offered = _read(shown) if shown else None
    if offered is None and (of_turns or of_buckets):
        offered = _offered_now(handle)
    unfit = _unfit(offered, of_turns, of_buckets) if offered else {}
    if unfit and unfit.keys() == {*of_turns, *of_buckets}:
        fail(f"nothing of that can be chosen: {_told(list(unfit), unfit)}", _STAYS)
    chosen = handle.select_turns(offered, memories or [], turns or [], of_buckets)
    if output.as_json:
        output.json(chosen)
        return
    selection = chosen["selection"]
    rows = [("memory", one) for one in selection["local_memories_turn_ids"]]
    rows += [("turn", one) for one in selection["turn_ids"]]
    rows += [("bucket", one) for one in selection["memory_bucket_ids"]]
    output.rows(("shown", "id"), rows, "Nothing is selected: only the current turn is shown.", whole="id")
    if chosen["dropped"]:
        output.say(f"Dropped: {_told(chosen['dropped'], unfit)}", "yellow")


def _read(file: str) -> "TurnContext":
    found = read_json(file, "--context")
    if not {"offer", "current", "candidates", "turn_memories", "buckets"} <= found.keys():
        raise typer.BadParameter("it is not what `turn context --json` prints", param_hint="--context")
    return cast("TurnContext", found)


def _offered_now(session: "Session") -> "TurnContext":
    """What the server would choose from without a context, with its offer, so that it chooses from just that."""
    # A turn that there is not: behind all those that there are.
    found = session.turn_context(uuid.uuid4().hex, "reconciler", last_turns=_MOST_LAST, render=False)
    return {**found, "current": None}


def _unfit(offered: "TurnContext", of_turns: Sequence[str], of_buckets: Sequence[str]) -> dict[str, str]:
    """Of the ids that stand for nothing that was offered, why."""
    shown = [offered["current"], *offered["candidates"]]
    turn_ids = {one["turn"]["turn_id"] for one in shown if one and one["turn"] and one["turn"]["messages"]}
    turn_ids |= {one["turn_id"] for one in offered["turn_memories"]}
    bucket_ids = {one["bucket_id"] for one in offered["buckets"]}
    unfit: dict[str, str] = {}
    for named, ids in ((of_turns, turn_ids), (of_buckets, bucket_ids)):
        for one in named:
            begun = sorted(each for each in ids if each.startswith(one))
            if one not in ids and len(begun) != 1:
                unfit[one] = f"could be {' or '.join(begun[:3])}" if begun else "not offered"
    return unfit


def _told(dropped: Sequence[str], unfit: dict[str, str]) -> str:
    return "; ".join(f"{one} ({unfit.get(one, 'one too many')})" for one in dropped)
