"""The command that selects which turns later agents see."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import SessionId, client_command
from runekeep.cli.common.output import Output
from runekeep.cli.turns.turns import read_json

if TYPE_CHECKING:
    from runekeep.client.sessions.session import Session
    from runekeep.client.sync_client import Client
    from runekeep.client.turns.results import TurnContext

_MAX_LAST = 20
_UNCHANGED = (
    "The selection is unchanged. `runekeep turn context SESSION TURN --audience reconciler` shows what you can select."
)


@client_command
def select(
    client: "Client",
    output: Output,
    session: SessionId,
    memories: Annotated[
        list[str] | None,
        typer.Option("--memory", "-m", metavar="TURN", help="Select the memory of this turn; may repeat."),
    ] = None,
    turns: Annotated[
        list[str] | None,
        typer.Option("--turn", "-t", metavar="TURN", help="Select this turn as a prior turn; may repeat."),
    ] = None,
    buckets: Annotated[
        list[str] | None,
        typer.Option("--bucket", "-b", metavar="ID", help="Select the card of this bucket; may repeat."),
    ] = None,
    shown: Annotated[
        str,
        typer.Option(
            "--context",
            metavar="FILE",
            help="Select from this output of `turn context --json`; - reads standard input.",
        ),
    ] = "",
) -> None:
    """Select which turns later agents see. The selection replaces the stored one, even if it is empty.

    If none of the ids can be selected, the command stores nothing.
    """
    handle = client.session(session)
    turn_refs, bucket_refs = [*(memories or []), *(turns or [])], buckets or []
    offered = _read(shown) if shown else None
    if offered is None and (turn_refs or bucket_refs):
        offered = _offered_now(handle)
    unavailable = _find_unavailable(offered, turn_refs, bucket_refs) if offered else {}
    if unavailable and unavailable.keys() == {*turn_refs, *bucket_refs}:
        fail(f"none of these can be selected: {_describe_dropped(list(unavailable), unavailable)}", _UNCHANGED)
    chosen = handle.select_turns(offered, memories or [], turns or [], bucket_refs)
    if output.as_json:
        output.json(chosen)
        return
    selection = chosen.selection
    rows = [("memory", one) for one in selection.local_memories_turn_ids]
    rows += [("turn", one) for one in selection.turn_ids]
    rows += [("bucket", one) for one in selection.memory_bucket_ids]
    output.rows(("shown", "id"), rows, "Nothing is selected: only the current turn is shown.", whole="id")
    if chosen.dropped:
        output.say(f"Dropped: {_describe_dropped(chosen.dropped, unavailable)}", "yellow")


def _read(file: str) -> "TurnContext":
    found = read_json(file, "--context")
    if not {"offer", "current", "candidates", "turn_memories", "buckets"} <= found.keys():
        raise typer.BadParameter("expected the output of `turn context --json`", param_hint="--context")
    from runekeep.client.turns.results import TurnContext

    return TurnContext(found)


def _offered_now(session: "Session") -> "TurnContext":
    """Returns what the server offers to a reconciler now."""
    from runekeep.client.turns.results import TurnContext

    # A turn id that does not exist counts as later than all turns.
    found = session.turn_context(uuid.uuid4().hex, "reconciler", last_turns=_MAX_LAST, render=False)
    return TurnContext({**found.to_dict(), "current": None})


def _find_unavailable(offered: "TurnContext", turn_refs: Sequence[str], bucket_refs: Sequence[str]) -> dict[str, str]:
    """Returns the ids that cannot be selected, with the reasons."""
    shown = [offered.current, *offered.candidates]
    turn_ids = {one.turn.turn_id for one in shown if one and one.turn and one.turn.messages}
    turn_ids |= {one.turn_id for one in offered.turn_memories}
    bucket_ids = {one.bucket_id for one in offered.buckets}
    unavailable: dict[str, str] = {}
    for named, ids in ((turn_refs, turn_ids), (bucket_refs, bucket_ids)):
        for one in named:
            matches = sorted(each for each in ids if each.startswith(one))
            if one not in ids and len(matches) != 1:
                unavailable[one] = f"could be {' or '.join(matches[:3])}" if matches else "not offered"
    return unavailable


def _describe_dropped(dropped: Sequence[str], unavailable: dict[str, str]) -> str:
    return "; ".join(f"{one} ({unavailable.get(one, 'one too many')})" for one in dropped)
