"""The command that recalls memories for a prompt."""

from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output
from runekeep.cli.memories.completeness import list_missing
from runekeep.cli.memories.filters import (
    Kind,
    MinRelevance,
    MinRevision,
    Peers,
    Since,
    Tags,
    Target,
    Threshold,
    Types,
    Until,
    parse_kind,
    parse_time,
)

if TYPE_CHECKING:
    from runekeep.client.memories.recall import RecallOptions
    from runekeep.client.memories.results import LevelName, RecallResult
    from runekeep.client.sync_client import Client

_PARTS = ("stable", "query")
_LEVELS = ("uri", "abstract", "overview", "full")


@client_command
def recall(
    client: "Client",
    output: Output,
    query: Annotated[
        str,
        typer.Argument(
            metavar="[QUERY]",
            help="Query in plain words; default: the last three live messages of the user in --session.",
        ),
    ] = "",
    session: Annotated[
        str, typer.Option("--session", metavar="SESSION", help="Leave out what this session got before.")
    ] = "",
    token_budget: Annotated[int, typer.Option("--token-budget", "-b", min=1, help="Maximum number of tokens.")] = 2000,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota",
            metavar="TYPE=ITEMS[,TOKENS]",
            help="Maximum for one memory type, or for passages; may repeat.",
        ),
    ] = None,
    level: Annotated[
        str, typer.Option("--level", help="Most detailed level: uri, abstract, overview or full.")
    ] = "full",
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=100, help="Maximum number of entries.")] = 40,
    target: Target = "",
    memory_type: Types = None,
    kind: Kind = "",
    threshold: Threshold = None,
    min_relevance: MinRelevance = None,
    peer: Peers = None,
    tag: Tags = None,
    since: Since = "",
    until: Until = "",
    min_revision: MinRevision = 0,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="stable (profile, preferences, open plans) or query (default); may repeat."),
    ] = None,
    stable_budget: Annotated[
        int, typer.Option("--stable-budget", min=1, help="Maximum number of tokens of the stable part.")
    ] = 500,
    repeat: Annotated[bool, typer.Option("--repeat", help="Include what the session got before.")] = False,
) -> None:
    """Print the memories most relevant to a query, formatted for a prompt and trimmed to a token budget. Notes go to
    stderr."""
    if level not in _LEVELS:
        raise typer.BadParameter(f"expected one of {', '.join(_LEVELS)}", param_hint="--level")
    if not set(part or []) <= set(_PARTS):
        raise typer.BadParameter(f"expected one of {', '.join(_PARTS)}", param_hint="--part")
    options: RecallOptions = {
        "token_budget": token_budget,
        "quotas": dict(_quota(text) for text in quota or []),
        "max_level": cast("LevelName", level),
        "limit": limit,
        "target_uri": target,
        "memory_types": memory_type or [],
        "kinds": parse_kind(kind),
        "peers": peer or [],
        "tags": tag or [],
        "min_revision": min_revision,
        "repeat": repeat,
        "parts": cast("list[Literal['stable', 'query']]", part or []),
        "stable_budget": stable_budget,
    }
    if threshold is not None:
        options["score_threshold"] = threshold
    if min_relevance is not None:
        options["min_relevance"] = min_relevance
    if (start := parse_time(since, "--since")) is not None:
        options["start_time"] = start
    if (end := parse_time(until, "--until")) is not None:
        options["end_time"] = end
    found = client.recall(query, session, **options)
    if output.as_json:
        output.json(found)
        return
    if texts := [text for text in (found.stable_text, found.text) if text]:
        output.say("\n\n".join(texts))
    notes = _notes(found)
    if not found.entries and not found.stable_text and (nothing := describe_empty_space(client)):
        notes = [nothing]
    for note in notes:
        typer.secho(note, err=True, dim=True)


def _quota(text: str) -> tuple[str, tuple[int, int]]:
    name, equals, most = text.partition("=")
    items, _, tokens = most.partition(",")
    if not (name and equals and items.isdecimal() and (tokens or "0").isdecimal()):
        raise typer.BadParameter("expected TYPE=ITEMS or TYPE=ITEMS,TOKENS", param_hint="--quota")
    return name, (int(items), int(tokens or 0))


def _notes(found: "RecallResult") -> list[str]:
    omitted = found.omitted
    entries = format_count(len(found.entries), "entry", "entries")
    notes = [f"{entries}, {format_count(found.tokens, 'token', 'tokens')}."]
    for number, why in (
        (omitted.given, "given to the session before"),
        (omitted.over_quota, "over a quota"),
        (omitted.over_budget, "without room"),
    ):
        if number:
            notes.append(f"Left out: {number} {why}.")
    return [*notes, *list_missing(found)]
