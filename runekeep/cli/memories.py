"""Commands about memories: the tree, single documents, search, versions and diffs."""

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import Output, counted, fail, minute

if TYPE_CHECKING:
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
def ls(client: "Client", output: Output, uri: DirectoryUri = "", show_all: Hidden = False, limit: Nodes = 1000) -> None:
    """List one directory."""
    found = client.ls(uri, node_limit=limit, show_all_hidden=show_all)
    if output.as_json:
        output.json(found)
        return
    from rich.text import Text

    output.say(Text(found["uri"], style="bold cyan"))
    for entry in found["entries"]:
        output.say(_named(entry))
        if entry["abstract"]:
            about = Text("    " + " ".join(entry["abstract"].split()), style="dim")
            output.console.print(about, no_wrap=True, overflow="ellipsis")
    if not found["entries"]:
        output.say("Empty.", "dim")
    _say_cut(output, found)


@app.command()
@calling
def tree(
    client: "Client",
    output: Output,
    uri: DirectoryUri = "",
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, max=16, help="Levels.")] = 5,
    show_all: Hidden = False,
    limit: Nodes = 1000,
) -> None:
    """Draw a directory and what is below it."""
    found = client.tree(uri, depth, node_limit=limit, show_all_hidden=show_all)
    if output.as_json:
        output.json(found)
        return
    output.console.print(drawn_tree(found))
    _say_cut(output, found)


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
) -> None:
    """Print a document: a memory, a summary, messages, a diff."""
    if version or fields:
        memory = client.get_memory(uri, version)
        if output.as_json:
            output.json(memory)
            return
        _draw_memory(output, memory)
        return
    text = client.read(uri, offset, limit)
    if output.as_json:
        output.json({"uri": uri, "offset": offset, "text": text})
    else:
        output.code(text, "markdown" if uri.endswith(".md") else "json")


@app.command()
@calling
def find(
    client: "Client",
    output: Output,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="In plain words.")],
    target: Annotated[str, typer.Option("--target", metavar="URI", help="Only below this URI.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=100, help="Results.")] = 10,
    memory_type: Annotated[list[str] | None, typer.Option("--type", help="Only this type; may repeat.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="memory or passage; left out: both.")] = "",
    threshold: Annotated[float | None, typer.Option("--threshold", help="Lowest score.")] = None,
    filter_: Annotated[
        list[str] | None, typer.Option("--filter", metavar="FIELD=TEXT", help="Field of a memory; may repeat.")
    ] = None,
    min_revision: Annotated[int, typer.Option("--min-revision", min=0, help="Wait until this can be found.")] = 0,
) -> None:
    """Search memories and archived conversation."""
    if kind not in ("", "memory", "passage"):
        raise typer.BadParameter("it is memory or passage", param_hint="--kind")
    found = client.find(
        query,
        target,
        limit,
        threshold,
        dict(_pair(text) for text in filter_ or []),
        memory_types=memory_type or [],
        kinds=[kind] if kind else [],  # type: ignore[list-item]  # checked above
        min_revision=min_revision,
    )
    if output.as_json:
        output.json(found)
        return
    if not found["results"]:
        output.say("Nothing found.", "dim")
    for item in found["results"]:
        output.say(drawn_hit(item))
    for part in found["degraded"]:
        output.say(f"Without {part} search: it could not run.", "yellow")
    if found["pending_passages"]:
        output.say(
            f"{counted(found['pending_passages'], 'message is', 'messages are')} not in the index yet.", "yellow"
        )


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


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("it is FIELD=TEXT", param_hint="--filter")
    return name, value


def _say_cut(output: Output, found: "Directory") -> None:
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
        label = _named(entry)
        label.no_wrap, label.overflow = True, "ellipsis"
        if entry["abstract"] and not entry["directory"]:
            label.append(f"  {' '.join(entry['abstract'].split())}", style="dim")
        open_branches.append(open_branches[-1].add(label))
    return root


def _named(entry: "DirectoryEntry") -> "Text":
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
