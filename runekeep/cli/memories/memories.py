"""Commands about memories: the tree, single documents, versions, types."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.formats import format_minute
from runekeep.cli.common.options import AsOf, client_command, parse_as_of
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from runekeep.client.memories.results import Directory, DirectoryEntry
    from runekeep.client.sync_client import Client

app = typer.Typer(no_args_is_help=True, help="Memories and documents.")

Uri = Annotated[str, typer.Argument(metavar="URI", help="For example viking://user/memories/profile.md.")]
DirectoryUri = Annotated[str, typer.Argument(metavar="[URI]", help="Directory; default: the whole space of the user.")]
Hidden = Annotated[bool, typer.Option("--all", "-a", help="Also list hidden documents, such as .abstract.md.")]
Nodes = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of entries.")]


MIN_ABSTRACT_WIDTH = 30
"""Columns below which an abstract is not shown beside a name."""
_INDENT = 4
"""Columns of each level of a tree."""
_MIN_NAME_WIDTH = 16


@app.command()
@client_command
def ls(
    client: "Client",
    output: Output,
    uri: DirectoryUri = "",
    show_all: Hidden = False,
    limit: Nodes = 1000,
    as_of: AsOf = "",
) -> None:
    """List one directory."""
    found = client.ls(uri, node_limit=limit, show_all_hidden=show_all, as_of=parse_as_of(as_of))
    if output.as_json:
        output.json(found)
        return
    from rich.text import Text

    output.say(Text(found.uri, style="bold cyan"))
    for entry in found.entries:
        output.say(render_entry_name(entry))
        if entry.abstract:
            about = Text("    " + " ".join(entry.abstract.split()), style="dim")
            output.console.print(about, no_wrap=True, overflow="ellipsis")
    if all(entry.directory for entry in found.entries) and (nothing := describe_empty_space(client)):
        output.say(nothing, "yellow")
    elif not found.entries:
        output.say("Empty.", "dim")
    say_truncated(output, found)


@app.command()
@client_command
def tree(
    client: "Client",
    output: Output,
    uri: DirectoryUri = "",
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, max=16, help="Number of levels.")] = 5,
    show_all: Hidden = False,
    limit: Nodes = 1000,
    as_of: AsOf = "",
) -> None:
    """Show a directory and everything below it."""
    found = client.tree(uri, level_limit=depth, node_limit=limit, show_all_hidden=show_all, as_of=parse_as_of(as_of))
    if output.as_json:
        output.json(found)
        return
    output.console.print(render_tree(found, output.console.width))
    if all(entry.directory for entry in found.entries) and (nothing := describe_empty_space(client)):
        output.say(nothing, "yellow")
    say_truncated(output, found)


@app.command()
@client_command
def read(
    client: "Client",
    output: Output,
    uri: Uri,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Number of lines to skip.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=-1, help="Number of lines; -1: all.")] = -1,
    version: Annotated[int, typer.Option("--version", min=0, help="Print this version of a memory.")] = 0,
    fields: Annotated[bool, typer.Option("--fields", help="Print a memory with its typed fields and sources.")] = False,
    characters: Annotated[
        str,
        typer.Option(
            "--characters", metavar="START[:LENGTH]", help="Print these characters, counted from 0, in place of lines."
        ),
    ] = "",
    as_of: AsOf = "",
) -> None:
    """Print a document: a memory, a summary, messages, a diff or the output of a tool."""
    part = _parse_range(characters)
    if part and (offset or limit >= 0 or version or fields):
        raise typer.BadParameter(
            "cannot be combined with --offset, --limit, --version or --fields", param_hint="--characters"
        )
    if version or fields:
        memory = client.get_memory(uri, version, as_of=parse_as_of(as_of))
        if output.as_json:
            output.json(memory)
            return
        _draw_memory(output, memory)
        return
    text = client.read(uri, offset, limit, characters=part, as_of=parse_as_of(as_of))
    if output.as_json:
        output.json({"uri": uri, "offset": part[0] if part else offset, "text": text})
    else:
        output.code(text, "markdown" if uri.endswith(".md") else "text" if uri.endswith(".txt") else "json")


@app.command()
@client_command
def versions(
    client: "Client", output: Output, uri: Uri, limit: Annotated[int, typer.Option("--limit", min=1)] = 50
) -> None:
    """List the versions of a memory, newest first."""
    found = list(islice(client.versions(uri), limit))
    if output.as_json:
        output.json({"versions": found})
        return
    rows = [
        (
            one.version,
            one.revision,
            format_minute(one.update_time),
            "deleted" if one.deleted else one.abstract,
        )
        for one in found
    ]
    output.rows(("version", "revision", "when", "abstract"), rows, "No versions.")


@app.command()
@client_command
def types(client: "Client", output: Output) -> None:
    """List the memory types of the server."""
    found = client.memory_types()
    if output.as_json:
        output.json(found)
        return
    rows = [
        (
            one.name,
            one.operation_mode.replace("_", " ") + ("" if one.enabled else ", off"),
            ", ".join(field.name for field in one.fields),
        )
        for one in found.memory_types
    ]
    output.rows(("type", "mode", "fields"), rows, "No types.")


def _parse_range(text: str) -> tuple[int, int] | None:
    """Returns start and length of --characters; length -1 reaches to the end."""
    if not text:
        return None
    start, _, length = text.partition(":")
    if not start.isdecimal() or (length and not length.isdecimal()):
        raise typer.BadParameter("expected START or START:LENGTH", param_hint="--characters")
    return int(start), int(length) if length else -1


def say_truncated(output: Output, found: "Directory") -> None:
    if found.truncated:
        output.say("There are more entries; raise --limit.", "yellow")


def _draw_memory(output: Output, memory: Any) -> None:
    from rich.text import Text

    head = Text(memory.uri, style="bold cyan")
    head.append(f"\n{memory.memory_type}, version {memory.version}, revision {memory.revision}", style="dim")
    if memory.extractor:
        head.append(f", by {memory.extractor.engine}", style="dim")
    output.say(head)
    output.say(memory.content)
    rows = [(name, value) for name, value in memory.fields.items() if name != "content"]
    if rows:
        output.rows(("field", "value"), rows, "")
    for source in memory.sources:
        session = source.session.rsplit("/", 1)[-1]
        output.say(f"from {source.message_id} in {session}", "magenta")


def render_tree(found: "Directory", width: int) -> "Tree":
    """Returns entries, which the server lists depth first, as a tree of `width` columns. An abstract that has little
    room beside the name is below it; a name that has no room lacks its middle."""
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(found.uri, style="bold cyan"), guide_style="dim")
    open_branches = [root]
    for entry in found.entries:
        del open_branches[entry.depth :]
        room = width - _INDENT * len(open_branches)
        label = render_entry_name(entry, room)
        label.no_wrap, label.overflow = True, "ellipsis"
        if entry.abstract and not entry.directory:
            gap = "  " if room - label.cell_len >= MIN_ABSTRACT_WIDTH else "\n  "
            label.append(f"{gap}{' '.join(entry.abstract.split())}", style="dim")
        open_branches.append(open_branches[-1].add(label))
    return root


def render_entry_name(entry: "DirectoryEntry", width: int = 0) -> "Text":
    """Returns the name of an entry, with its version if it is not the first. `width`: the columns that it may take; 0:
    any number."""
    from rich.text import Text

    style = "bold blue" if entry.directory else "green" if entry.memory_type else ""
    version = f" v{entry.version}" if entry.version > 1 else ""
    name = entry.name + ("/" if entry.directory else "")
    if width:
        name = _without_middle(name, max(width - len(version), _MIN_NAME_WIDTH))
    return Text.assemble((name, style), (version, "yellow"))


def _without_middle(name: str, width: int) -> str:
    """Returns a name of at most `width` columns: the beginning and the end of one that is longer."""
    from rich.cells import cell_len, chop_cells

    if cell_len(name) <= width:
        return name
    half = (width - 1) // 2
    start, end = chop_cells(name, half)[0], chop_cells(name[::-1], half)[0][::-1]
    return f"{start}…{end}"
