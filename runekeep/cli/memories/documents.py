"""Commands that search the tree of documents: by path and by text."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import AsOf, client_command, parse_as_of
from runekeep.cli.common.output import Output
from runekeep.cli.memories.memories import Hidden, Nodes, say_truncated

if TYPE_CHECKING:
    from rich.text import Text

    from runekeep.client.memories.results import GrepMatch
    from runekeep.client.sync_client import Client

Below = Annotated[
    str, typer.Argument(metavar="[URI]", help="Only below this URI; default: the whole space of the user.")
]


@client_command
def glob(
    client: "Client",
    output: Output,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="For example **/*.md; put it in quotes.")],
    uri: Below = "",
    show_all: Hidden = False,
    limit: Nodes = 1000,
    as_of: AsOf = "",
) -> None:
    """List documents and directories whose path below URI matches a pattern."""
    found = client.glob(pattern, uri, node_limit=limit, show_all_hidden=show_all, as_of=parse_as_of(as_of))
    if output.as_json:
        output.json(found)
        return
    from rich.text import Text

    for entry in found.entries:
        style = "bold blue" if entry.directory else "green" if entry.memory_type else ""
        output.say(Text(entry.uri + ("/" if entry.directory else ""), style=style))
    if not found.entries:
        output.say(describe_empty_space(client) or "Nothing matches.", "yellow")
    say_truncated(output, found)


@client_command
def grep(
    client: "Client",
    output: Output,
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="Plain text, or a regular expression with --regex.")
    ],
    uri: Annotated[str, typer.Argument(metavar="[URI]", help="Only below this URI, or in this document.")] = "",
    regex: Annotated[bool, typer.Option("--regex", "-e", help="PATTERN is a regular expression (RE2).")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore upper and lower case.")] = False,
    glob: Annotated[
        str, typer.Option("--glob", "-g", metavar="PATTERN", help="Only documents whose path matches.")
    ] = "",
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, max=10, help="Lines to show before and after each match.")
    ] = 0,
    count: Annotated[
        bool, typer.Option("--count", "-c", help="Print only the number of lines of each document.")
    ] = False,
    show_all: Hidden = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of lines.")] = 1000,
    as_of: AsOf = "",
) -> None:
    """Show lines that contain a text or match a regular expression. Lines are counted from 1; with --json from 0, as in
    the API."""
    matches = client.grep(
        pattern,
        uri,
        regex=regex,
        ignore_case=ignore_case,
        glob=glob,
        context_lines=context,
        show_all_hidden=show_all,
        as_of=parse_as_of(as_of),
    )
    found = list(islice(matches, limit + 1))
    truncated, found = len(found) > limit, found[:limit]
    counts: dict[str, int] = {}
    for match in found:
        counts[match.uri] = counts.get(match.uri, 0) + 1
    if output.as_json:
        output.json({"counts": counts, "truncated": truncated} if count else {"matches": found, "truncated": truncated})
        return
    from rich.text import Text

    if count:
        for document, lines in counts.items():
            output.say(Text.assemble((document, "magenta"), f": {lines}"))
    else:
        _draw(output, found)
    lines_, documents = format_count(len(found), "line", "lines"), format_count(len(counts), "document", "documents")
    output.say(f"{lines_} in {documents}." if found else describe_empty_space(client) or "Nothing found.", "dim")
    if truncated:
        output.say("There are more lines; raise --limit.", "yellow")


def _draw(output: Output, found: "list[GrepMatch]") -> None:
    """Prints lines below the URI of their document. A colon marks a match, a dash a line around it."""
    from rich.text import Text

    document = ""
    shown = -1
    lines = {(match.uri, match.line) for match in found}
    for match in found:
        if match.uri != document:
            if document:
                output.say("")
            document, shown = match.uri, -1
            output.say(Text(document, style="bold magenta"))
        first = match.line - len(match.before)
        around = [*match.before, match.text, *match.after]
        if shown >= 0 and first > shown + 1 and len(around) > 1:
            output.say("--", "dim")
        for number, text in enumerate(around, first):
            if number > match.line and (document, number) in lines:
                # The next match prints this line.
                break
            if number > shown:
                output.say(_line(number, text, number == match.line))
                shown = number
    if found:
        output.say("")


def _line(number: int, text: str, hit: bool) -> "Text":
    """Returns a line for people. `number`: counted from 0, as the server does."""
    from rich.text import Text

    return Text.assemble(
        (str(number + 1), "green" if hit else "dim"), ":" if hit else "-", (text, "" if hit else "dim")
    )
