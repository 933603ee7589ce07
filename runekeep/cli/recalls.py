"""Commands that say what a model is to be told: recalled memories, and the context of a session."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from runekeep.cli.completeness import missing_from
from runekeep.cli.filters import (
    Kind,
    MinRevision,
    Peers,
    Since,
    Tags,
    Target,
    Threshold,
    Types,
    Until,
    kinds_of,
    time_of,
)
from runekeep.cli.options import calling
from runekeep.cli.output import Output, counted
from runekeep.cli.sessions import SessionId, drawn_message, message_as_json

if TYPE_CHECKING:
    from runekeep.client.aio_recall import RecallOptions
    from runekeep.client.face import Client
    from runekeep.client.recall_results import LevelName, Recalled

_LEVELS = ("uri", "abstract", "overview", "full")


@calling
def recall(
    client: "Client",
    output: Output,
    query: Annotated[
        str, typer.Argument(metavar="[QUERY]", help="In plain words; left out: what was said last in the session.")
    ] = "",
    session: Annotated[
        str, typer.Option("--session", metavar="SESSION", help="What it was given before is left out.")
    ] = "",
    budget: Annotated[int, typer.Option("--budget", "-b", min=1, help="Most tokens.")] = 2000,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota",
            metavar="TYPE=ITEMS[,TOKENS]",
            help="Most of one memory type, or of passages; may repeat. Of others any number.",
        ),
    ] = None,
    level: Annotated[str, typer.Option("--level", help="The deepest: uri, abstract, overview, full.")] = "full",
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=100, help="Most entries.")] = 20,
    target: Target = "",
    memory_type: Types = None,
    kind: Kind = "",
    threshold: Threshold = None,
    peer: Peers = None,
    tag: Tags = None,
    since: Since = "",
    until: Until = "",
    min_revision: MinRevision = 0,
    repeat: Annotated[bool, typer.Option("--repeat", help="Also what the session was given before.")] = False,
) -> None:
    """Tell what is worth telling a model now, as text that can be put into its prompt. Notes go to stderr."""
    if level not in _LEVELS:
        raise typer.BadParameter(f"it is one of {', '.join(_LEVELS)}", param_hint="--level")
    options: RecallOptions = {
        "token_budget": budget,
        "quotas": dict(_quota(text) for text in quota or []),
        "max_level": cast("LevelName", level),
        "limit": limit,
        "target_uri": target,
        "memory_types": memory_type or [],
        "kinds": kinds_of(kind),
        "peers": peer or [],
        "tags": tag or [],
        "min_revision": min_revision,
        "repeat": repeat,
    }
    if threshold is not None:
        options["score_threshold"] = threshold
    if (start := time_of(since, "--since")) is not None:
        options["start_time"] = start
    if (end := time_of(until, "--until")) is not None:
        options["end_time"] = end
    found = client.recall(query, session, **options)
    if output.as_json:
        output.json(found)
        return
    if found["text"]:
        output.say(found["text"])
    for note in _notes(found):
        typer.secho(note, err=True, dim=True)


@calling
def context(
    client: "Client",
    output: Output,
    session: SessionId,
    budget: Annotated[int, typer.Option("--budget", "-b", min=1, help="Most tokens.")] = 8000,
) -> None:
    """Show what a model needs to go on with a conversation: overview, archived messages, live ones."""
    found = client.get_session(session).context(budget)
    if output.as_json:
        output.json(
            {
                "overview": found.overview,
                "overview_uri": found.overview_uri,
                "pending_messages": [message_as_json(message) for message in found.pending],
                "live_messages": [message_as_json(message) for message in found.live],
                "tokens": found.tokens,
                "omitted_messages": found.omitted_messages,
                "overview_omitted": found.overview_omitted,
            }
        )
        return
    if found.overview:
        output.say(found.overview_uri, "bold cyan")
        output.say(found.overview)
    for title, messages in (("Archived, not extracted yet", found.pending), ("Live", found.live)):
        if messages:
            output.say(title, "bold")
        for message in messages:
            output.say(drawn_message(message))
    output.say(counted(found.tokens, "token", "tokens"), "dim")
    if found.omitted_messages:
        output.say(f"No room for {counted(found.omitted_messages, 'older message', 'older messages')}.", "yellow")
    if found.overview_omitted:
        output.say(f"No room for the overview: {found.overview_uri}", "yellow")


def _quota(text: str) -> tuple[str, tuple[int, int]]:
    name, equals, most = text.partition("=")
    items, _, tokens = most.partition(",")
    if not (name and equals and items.isdecimal() and (tokens or "0").isdecimal()):
        raise typer.BadParameter("it is TYPE=ITEMS or TYPE=ITEMS,TOKENS", param_hint="--quota")
    return name, (int(items), int(tokens or 0))


def _notes(found: "Recalled") -> list[str]:
    omitted = found["omitted"]
    notes = [f"{counted(len(found['entries']), 'entry', 'entries')}, {counted(found['tokens'], 'token', 'tokens')}."]
    for number, why in (
        (omitted["given"], "given to the session before"),
        (omitted["over_quota"], "over a quota"),
        (omitted["over_budget"], "without room"),
    ):
        if number:
            notes.append(f"Left out: {number} {why}.")
    return [*notes, *missing_from(found)]
