"""Commands that go through the tree of documents: patterns of paths, text search."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.memories import Hidden, Nodes, say_cut
from runekeep.cli.options import AsOf, calling, moment
from runekeep.cli.output import Output, counted

if TYPE_CHECKING:
    from rich.text import Text

    from runekeep.client.face import Client
    from runekeep.client.results import GrepMatch

Below = Annotated[str, typer.Argument(metavar="[URI]", help="Below this place; left out: everything of the user.")]


@calling
def glob(
    client: "Client",
    output: Output,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="For example **/*.md; put it in quotes.")],
    uri: Below = "",
    show_all: Hidden = False,
    limit: Nodes = 1000,
    as_of: AsOf = "",
) -> None:
    """List documents and directories whose path below URI fits a pattern."""
    found = client.glob(pattern, uri, node_limit=limit, show_all_hidden=show_all, as_of=moment(as_of))
    if output.as_json:
        output.json(found)
        return
    from rich.text import Text

    for entry in found["entries"]:
        style = "bold blue" if entry["directory"] else "green" if entry["memory_type"] else ""
        output.say(Text(entry["uri"] + ("/" if entry["directory"] else ""), style=style))
    if not found["entries"]:
        output.say("Nothing fits.", "dim")
    say_cut(output, found)


@calling
def grep(
    client: "Client",
    output: Output,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Plain text, or an expression with --regex.")],
    uri: Annotated[str, typer.Argument(metavar="[URI]", help="Below this place, or in this document.")] = "",
    regex: Annotated[bool, typer.Option("--regex", "-e", help="An expression in the syntax of RE2.")] = False,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Capital and small letters are one.")
    ] = False,
    glob: Annotated[str, typer.Option("--glob", "-g", metavar="PATTERN", help="Only documents whose path fits.")] = "",
    context: Annotated[int, typer.Option("--context", "-C", min=0, max=10, help="Lines before and after.")] = 0,
    count: Annotated[bool, typer.Option("--count", "-c", help="Only how many lines of each document.")] = False,
    show_all: Hidden = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many lines.")] = 1000,
    as_of: AsOf = "",
) -> None:
    """Show the lines that hold a text or fit an expression, by number from 0, as `read --offset` takes them."""
    matches = client.grep(
        pattern,
        uri,
        regex=regex,
        ignore_case=ignore_case,
        glob=glob,
        context_lines=context,
        show_all_hidden=show_all,
        as_of=moment(as_of),
    )
    found = list(islice(matches, limit + 1))
    truncated, found = len(found) > limit, found[:limit]
    counts: dict[str, int] = {}
    for match in found:
        counts[match["uri"]] = counts.get(match["uri"], 0) + 1
    if output.as_json:
        output.json({"counts": counts, "truncated": truncated} if count else {"matches": found, "truncated": truncated})
        return
    from rich.text import Text

    if count:
        for document, lines in counts.items():
            output.say(Text.assemble((document, "magenta"), f": {lines}"))
    else:
        _draw(output, found)
    lines_, documents = counted(len(found), "line", "lines"), counted(len(counts), "document", "documents")
    output.say(f"{lines_} in {documents}." if found else "Nothing found.", "dim")
    if truncated:
        output.say("There is more; --limit shows it.", "yellow")


def _draw(output: Output, found: "list[GrepMatch]") -> None:
    """Each document once, its lines below it; a line that is found is marked by a colon, one around it by a dash."""
    from rich.text import Text

    document = ""
    shown = -1
    lines = {(match["uri"], match["line"]) for match in found}
    for match in found:
        if match["uri"] != document:
            if document:
                output.say("")
            document, shown = match["uri"], -1
            output.say(Text(document, style="bold magenta"))
        first = match["line"] - len(match["before"])
        around = [*match["before"], match["text"], *match["after"]]
        if shown >= 0 and first > shown + 1 and len(around) > 1:
            output.say("--", "dim")
        for number, text in enumerate(around, first):
            if number > match["line"] and (document, number) in lines:
                # It comes next, with what is behind it.
                break
            if number > shown:
                output.say(_line(number, text, number == match["line"]))
                shown = number
    if found:
        output.say("")


def _line(number: int, text: str, hit: bool) -> "Text":
    from rich.text import Text

    return Text.assemble((str(number), "green" if hit else "dim"), ":" if hit else "-", (text, "" if hit else "dim"))
