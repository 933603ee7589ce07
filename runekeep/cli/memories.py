"""Commands about memories: the tree, single documents, search, versions and diffs."""

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

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
from runekeep.cli.options import AsOf, calling, moment
from runekeep.cli.output import Output, fail, minute

if TYPE_CHECKING:
    from rich.padding import Padding
    from rich.text import Text
    from rich.tree import Tree

    from runekeep.client.face import Client
    from runekeep.client.results import Directory, DirectoryEntry, FoundItem, MemoryDiff

app = typer.Typer(no_args_is_help=True, help="What is remembered.")

Uri = Annotated[str, typer.Argument(metavar="URI", help="For example viking://user/memories/profile.md.")]
DirectoryUri = Annotated[str, typer.Argument(metavar="[URI]", help="A directory; left out: everything of the user.")]
Hidden = Annotated[bool, typer.Option("--all", "-a", help="Also hidden documents, such as .abstract.md.")]
Nodes = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many entries.")]


@app.command()
@calling
def ls(
    client: "Client",
    output: Output,
    uri: DirectoryUri = "",
    show_all: Hidden = False,
    limit: Nodes = 1000,
    as_of: AsOf = "",
) -> None:
    """List one directory."""
    found = client.ls(uri, node_limit=limit, show_all_hidden=show_all, as_of=moment(as_of))
    if output.as_json:
        output.json(found)
        return
    from rich.text import Text

    output.say(Text(found["uri"], style="bold cyan"))
    for entry in found["entries"]:
        output.say(named(entry))
        if entry["abstract"]:
            about = Text("    " + " ".join(entry["abstract"].split()), style="dim")
            output.console.print(about, no_wrap=True, overflow="ellipsis")
    if not found["entries"]:
        output.say("Empty.", "dim")
    say_cut(output, found)


@app.command()
@calling
def tree(
    client: "Client",
    output: Output,
    uri: DirectoryUri = "",
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, max=16, help="Levels.")] = 5,
    show_all: Hidden = False,
    limit: Nodes = 1000,
    as_of: AsOf = "",
) -> None:
    """Draw a directory and what is below it."""
    found = client.tree(uri, level_limit=depth, node_limit=limit, show_all_hidden=show_all, as_of=moment(as_of))
    if output.as_json:
        output.json(found)
        return
    output.console.print(drawn_tree(found))
    say_cut(output, found)


@app.command()
@calling
def read(
    client: "Client",
    output: Output,
    uri: Uri,
    offset: Annotated[int, typer.Option("--offset", min=0, help="First line, from 0.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=-1, help="Lines; -1: all.")] = -1,
    version: Annotated[int, typer.Option("--version", min=0, help="An older version of a memory.")] = 0,
    fields: Annotated[bool, typer.Option("--fields", help="A memory with its typed fields and sources.")] = False,
    characters: Annotated[
        str, typer.Option("--characters", metavar="START[:LENGTH]", help="By characters, from 0, not by lines.")
    ] = "",
    as_of: AsOf = "",
) -> None:
    """Print a document: a memory, a summary, messages, a diff, the output of a tool."""
    part = _range(characters)
    if part and (offset or limit >= 0 or version or fields):
        raise typer.BadParameter("it does not go with lines, versions or fields", param_hint="--characters")
    if version or fields:
        memory = client.get_memory(uri, version, as_of=moment(as_of))
        if output.as_json:
            output.json(memory)
            return
        _draw_memory(output, memory)
        return
    text = client.read(uri, offset, limit, characters=part, as_of=moment(as_of))
    if output.as_json:
        output.json({"uri": uri, "offset": part[0] if part else offset, "text": text})
    else:
        output.code(text, "markdown" if uri.endswith(".md") else "text" if uri.endswith(".txt") else "json")


@app.command()
@calling
def find(
    client: "Client",
    output: Output,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="In plain words.")],
    target: Target = "",
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=100, help="Results.")] = 10,
    memory_type: Types = None,
    kind: Kind = "",
    threshold: Threshold = None,
    filter_: Annotated[
        list[str] | None, typer.Option("--filter", metavar="FIELD=TEXT", help="Field of a memory; may repeat.")
    ] = None,
    peer: Peers = None,
    tag: Tags = None,
    session: Annotated[
        list[str] | None, typer.Option("--session", help="Said in this session, or came from it; may repeat.")
    ] = None,
    since: Since = "",
    until: Until = "",
    as_of: AsOf = "",
    explain: Annotated[bool, typer.Option("--explain", help="Say how each score came about.")] = False,
    min_revision: MinRevision = 0,
) -> None:
    """Search memories and archived conversation."""
    found = client.find(
        query,
        target,
        limit,
        threshold,
        dict(_pair(text) for text in filter_ or []),
        memory_types=memory_type or [],
        kinds=kinds_of(kind),
        min_revision=min_revision,
        peers=peer or [],
        tags=tag or [],
        sessions=session or [],
        start_time=time_of(since, "--since"),
        end_time=time_of(until, "--until"),
        as_of=moment(as_of),
        explain=explain,
    )
    if output.as_json:
        output.json(found)
        return
    if not found["results"]:
        output.say("Nothing found.", "dim")
    for item in found["results"]:
        output.say(drawn_hit(item))
        if explain:
            output.console.print(drawn_parts(item))
    for sentence in missing_from(found):
        output.say(sentence, "yellow")


@app.command()
@calling
def diff(
    client: "Client",
    output: Output,
    what: Annotated[str, typer.Argument(metavar="ARCHIVE|SESSION", help="URI of an archive, or a session.")],
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", "-y", help="Before and after in two columns.")
    ] = False,
) -> None:
    """Show what a commit changed; of a session, its newest finished commit."""
    archive_uri = what
    if "/history/archive_" not in what:
        done = (one["uri"] for one in client.get_session(what).archives() if one["state"] == "done")
        archive_uri = next(done, "")
        if not archive_uri:
            fail("the session has no finished commit yet", "See its commits: `runekeep session show SESSION`.")
    found = client.memory_diff(archive_uri)
    if output.as_json:
        output.json(found)
    else:
        draw_diff(output, found, side_by_side=side_by_side)


@app.command()
@calling
def versions(
    client: "Client", output: Output, uri: Uri, limit: Annotated[int, typer.Option("--limit", min=1)] = 50
) -> None:
    """List the versions of a memory, newest first."""
    found = list(islice(client.versions(uri), limit))
    if output.as_json:
        output.json({"versions": found})
        return
    rows = [
        (one["version"], one["revision"], minute(one["update_time"]), "deleted" if one["deleted"] else one["abstract"])
        for one in found
    ]
    output.rows(("version", "revision", "when", "abstract"), rows, "No versions.")


@app.command()
@calling
def types(client: "Client", output: Output) -> None:
    """List the types of memory that the server keeps."""
    found = client.memory_types()
    if output.as_json:
        output.json(found)
        return
    rows = [
        (
            one["name"],
            one["operation_mode"].replace("_", " ") + ("" if one["enabled"] else ", off"),
            ", ".join(field["name"] for field in one["fields"]),
        )
        for one in found["memory_types"]
    ]
    output.rows(("type", "mode", "fields"), rows, "No types.")


def _range(text: str) -> tuple[int, int] | None:
    """Start and length of --characters; a length that is left out reaches to the end."""
    if not text:
        return None
    start, _, length = text.partition(":")
    if not start.isdecimal() or (length and not length.isdecimal()):
        raise typer.BadParameter("it is START or START:LENGTH", param_hint="--characters")
    return int(start), int(length) if length else -1


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("it is FIELD=TEXT", param_hint="--filter")
    return name, value


def say_cut(output: Output, found: "Directory") -> None:
    if found["truncated"]:
        output.say("There is more; --limit shows it.", "yellow")


def _draw_memory(output: Output, memory: Any) -> None:
    from rich.text import Text

    head = Text(memory["uri"], style="bold cyan")
    head.append(f"\n{memory['memory_type']}, version {memory['version']}, revision {memory['revision']}", style="dim")
    if memory["extractor"]:
        head.append(f", by {memory['extractor']['engine']}", style="dim")
    output.say(head)
    output.say(memory["content"])
    rows = [(name, value) for name, value in memory["fields"].items() if name != "content"]
    if rows:
        output.rows(("field", "value"), rows, "")
    for source in memory["sources"]:
        session = source["session"].rsplit("/", 1)[-1]
        output.say(f"from {source['message_id']} in {session}", "magenta")


def drawn_tree(found: "Directory") -> "Tree":
    """Entries as the server lists them, depth first, as a tree."""
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(found["uri"], style="bold cyan"), guide_style="dim")
    open_branches = [root]
    for entry in found["entries"]:
        del open_branches[entry["depth"] :]
        label = named(entry)
        label.no_wrap, label.overflow = True, "ellipsis"
        if entry["abstract"] and not entry["directory"]:
            label.append(f"  {' '.join(entry['abstract'].split())}", style="dim")
        open_branches.append(open_branches[-1].add(label))
    return root


def named(entry: "DirectoryEntry") -> "Text":
    """The name of an entry, and which version it is when it is not the first."""
    from rich.text import Text

    style = "bold blue" if entry["directory"] else "green" if entry["memory_type"] else ""
    label = Text.assemble((entry["name"] + ("/" if entry["directory"] else ""), style))
    if entry["version"] > 1:
        label.append(f" v{entry['version']}", style="yellow")
    return label


def drawn_hit(item: "FoundItem") -> "Text":
    """A search result: score and place, and below them what it says."""
    from rich.text import Text

    where = item["uri"] if item["kind"] == "memory" else f"{item['uri']} {item['message_id']}"
    text = Text.assemble((f"{item['score']:.3f} ", "bold yellow"), (item["kind"], "dim"), " ", (where, "cyan"))
    said = item["abstract"] if item["kind"] == "memory" else item["text"]
    text.append(f"\n      {' '.join(said.split())}")
    return text


def drawn_parts(item: "FoundItem") -> "Padding":
    """What each part of a score measured, and what that added to it."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("part")
    for column in ("measured", "adds"):
        table.add_column(column, justify="right")
    for part in item["detail"]["parts"]:
        table.add_row(part["name"], f"{part['value']:.3f}", f"{part['added']:+.3f}")
    return Padding(table, (0, 0, 1, 6))


def draw_diff(output: Output, found: "MemoryDiff", *, side_by_side: bool = False) -> None:
    """Every change of a commit, before and after."""
    from rich.text import Text

    counts = found["summary"]
    head = Text(found["archive_uri"], style="bold cyan")
    head.append(f"\n{counts['total_adds']} new, {counts['total_updates']} changed, {counts['total_deletes']} deleted")
    head.append(f"; revision {found['revision']}", style="dim")
    output.say(head)
    operations = found["operations"]
    changes = [("new", "green", change, "", change["after"]) for change in operations["adds"]]
    changes += [("changed", "yellow", change, change["before"], change["after"]) for change in operations["updates"]]
    changes += [("deleted", "red", change, change["deleted_content"], "") for change in operations["deletes"]]
    for word, style, change, before, after in changes:
        output.say(Text.assemble("\n", (word, f"bold {style}"), f" {change['uri']}"))
        if change["reason"]:
            output.say(change["reason"], "italic dim")
        draw_texts(output, before, after, side_by_side=side_by_side)


def draw_texts(output: Output, before: str, after: str, *, side_by_side: bool = False) -> None:
    """A document as it was and as it is."""
    if side_by_side:
        _draw_columns(output, before, after)
    else:
        _draw_unified(output, before, after)


def _draw_unified(output: Output, before: str, after: str) -> None:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]
    output.code("\n".join(lines), "diff")


def _draw_columns(output: Output, before: str, after: str) -> None:
    from rich.table import Table
    from rich.text import Text

    old, new = before.splitlines(), after.splitlines()
    table = Table(expand=True, show_header=False, pad_edge=False)
    table.add_column(ratio=1, overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    for tag, old_from, old_to, new_from, new_to in difflib.SequenceMatcher(None, old, new).get_opcodes():
        left, right = "\n".join(old[old_from:old_to]), "\n".join(new[new_from:new_to])
        same = tag == "equal"
        table.add_row(Text(left, style="dim" if same else "red"), Text(right, style="dim" if same else "green"))
    output.console.print(table)
