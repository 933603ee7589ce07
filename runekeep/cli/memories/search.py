"""The command that searches memories and archived conversation."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import AsOf, client_command, parse_as_of
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
    from rich.padding import Padding
    from rich.text import Text

    from runekeep.client.memories.requests import SearchOptions
    from runekeep.client.memories.results import SearchExplanation, SearchResult
    from runekeep.client.sync_client import Client


@client_command
def find(
    client: "Client",
    output: Output,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Query in plain words.")],
    target: Target = "",
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=100, help="Maximum number of results.")] = 10,
    memory_type: Types = None,
    kind: Kind = "",
    threshold: Threshold = None,
    min_relevance: MinRelevance = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="FIELD=TEXT", help="Only memories whose field has this value; may repeat."),
    ] = None,
    peer: Peers = None,
    tag: Tags = None,
    session: Annotated[
        list[str] | None,
        typer.Option("--session", help="Only what was said in this session or came from it; may repeat."),
    ] = None,
    since: Since = "",
    until: Until = "",
    as_of: AsOf = "",
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    min_revision: MinRevision = 0,
    why: Annotated[
        str,
        typer.Option("--why", metavar="URI", help="Say why this memory, or a message of this session, is not found."),
    ] = "",
    message: Annotated[str, typer.Option("--message", metavar="ID", help="The message that --why asks about.")] = "",
) -> None:
    """Search memories and archived conversation."""
    options: SearchOptions = {
        "target_uri": target,
        "limit": limit,
        "score_threshold": threshold,
        "filter": dict(_parse_filter(text) for text in filter_ or []),
        "memory_types": memory_type or [],
        "kinds": parse_kind(kind),
        "min_revision": min_revision,
        "peers": peer or [],
        "tags": tag or [],
        "sessions": session or [],
        "start_time": parse_time(since, "--since"),
        "end_time": parse_time(until, "--until"),
        "as_of": parse_as_of(as_of),
        "explain": explain,
        "min_relevance": min_relevance,
    }
    if why:
        explanation = client.explain_search(why, query, message_id=message, **options)
        if output.as_json:
            output.json(explanation)
        else:
            _say_why(output, explanation)
        return
    found = client.find(query, **options)
    if output.as_json:
        output.json(found)
        return
    if not found.results:
        output.say(describe_empty_space(client) or "Nothing found.", "yellow")
    for item in found.results:
        output.say(render_result(item))
        if explain:
            output.console.print(render_score_parts(item))
    for sentence in list_missing(found):
        output.say(sentence, "yellow")


def _say_why(output: Output, found: "SearchExplanation") -> None:
    from runekeep.client.memories.outcomes import describe_outcome

    output.say(describe_outcome(found.outcome, found.excluded_by), "bold")
    if found.rank:
        output.say(f"Its place is {found.rank} of {format_count(found.candidates, 'candidate', 'candidates')}.")
    if found.without_vector:
        output.say("It has no vector yet, so it is found by its words alone.", "yellow")
    for title, item in (("The document:", found.document), ("The last result:", found.last)):
        if item is not None:
            output.say(title)
            output.say(render_result(item))
            output.console.print(render_score_parts(item))


def _parse_filter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("expected FIELD=TEXT", param_hint="--filter")
    return name, value


def render_result(item: "SearchResult") -> "Text":
    """Returns a search result: score and place, and its text below."""
    from rich.text import Text

    where = item.uri if item.kind == "memory" else f"{item.uri} {item.message_id}"
    text = Text.assemble((f"{item.score:.3f} ", "bold yellow"), (item.kind, "dim"), " ", (where, "cyan"))
    said = item.abstract if item.kind == "memory" else item.text
    text.append(f"\n      {' '.join(said.split())}")
    return text


def render_score_parts(item: "SearchResult") -> "Padding":
    """Returns a table of the parts of a score: what each measured and added."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("part")
    for column in ("measured", "adds"):
        table.add_column(column, justify="right")
    for part in item.detail.parts:
        table.add_row(part.name, f"{part.value:.3f}", f"{part.added:+.3f}")
    return Padding(table, (0, 0, 1, 6))
