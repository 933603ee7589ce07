"""Commands that change memories by hand. Each names the version that it changes, so that no other change is lost."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from runekeep.client.memories.changes import FieldEdit
    from runekeep.client.memories.results import Memory
    from runekeep.client.sync_client import Client

Uri = Annotated[str, typer.Argument(metavar="URI", help="URI of a memory, as `memory tree` lists it.")]
Fields = Annotated[
    list[str] | None, typer.Argument(metavar="FIELD=VALUE", help="Fields to set; `memory types` lists them.")
]
Content = Annotated[
    str, typer.Option("--content", metavar="FILE", help="Text for the field content; - reads standard input.")
]
Base = Annotated[
    int | None,
    typer.Option("--base-version", min=1, help="Refuse unless this is the current version; default: any version."),
]


@client_command
def write(
    client: "Client",
    output: Output,
    memory_type: Annotated[str, typer.Argument(metavar="TYPE", help="One of `memory types`.")],
    fields: Fields = None,
    content: Content = "",
    base_version: Annotated[
        int, typer.Option("--base-version", min=0, help="Version to replace; 0: the memory must not exist yet.")
    ] = 0,
    peer: Annotated[str, typer.Option("--peer", metavar="ID", help="Peer that it is about; default: the user.")] = "",
    abstract: Annotated[
        str, typer.Option("--abstract", help="Abstract in one sentence; default: made from the content.")
    ] = "",
) -> None:
    """Write a whole memory. Its fields determine its name. Fields that you leave out become empty.

    For example: runekeep memory write preferences topic=Tea content="Likes green tea."
    """
    given = parse_fields(fields, content)
    written = client.put_memory(memory_type, given, base_version=base_version, peer_id=peer, abstract=abstract)
    _show(output, written, base_version)


@client_command
def edit(
    client: "Client",
    output: Output,
    uri: Uri,
    fields: Fields = None,
    content: Content = "",
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Text to replace; it must occur exactly once.")
    ] = "",
    replace: Annotated[str, typer.Option("--replace", metavar="TEXT", help="New text for --search.")] = "",
    field: Annotated[str, typer.Option("--field", help="Field to search with --search.")] = "content",
    base_version: Base = None,
) -> None:
    """Change fields of a memory: set values, or replace one piece of a text. Other fields stay.

    For example: runekeep memory edit URI --search "green tea" --replace "black tea"
    """
    from runekeep.client.memories.changes import Replace

    changes: dict[str, FieldEdit] = dict(parse_fields(fields, content))
    if replace and not search:
        raise typer.BadParameter("needs --search", param_hint="--replace")
    if search:
        if field in changes:
            raise typer.BadParameter(f"{field} cannot get a new value too", param_hint="--search")
        changes[field] = Replace(search, replace)
    if not changes:
        raise typer.BadParameter("give FIELD=VALUE, --content or --search", param_hint="FIELD=VALUE")
    base = base_version or client.get_memory(uri, view="abstract").version
    _show(output, client.edit_memory(uri, changes, base_version=base), base)


@client_command
def delete(client: "Client", output: Output, uri: Uri, base_version: Base = None) -> None:
    """Delete a memory. Its versions stay readable."""
    base = base_version or client.get_memory(uri, view="abstract").version
    _show(output, client.delete_memory(uri, base_version=base), base)


def parse_fields(pairs: list[str] | None, content: str) -> dict[str, str]:
    """Returns values by field, as text. The server converts them to the types of the fields."""
    given: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="FIELD=VALUE")
        if name in given:
            raise typer.BadParameter(f"{name} is given twice", param_hint="FIELD=VALUE")
        given[name] = value
    if content:
        if "content" in given:
            raise typer.BadParameter("content is given twice", param_hint="--content")
        given["content"] = _text(content)
    return given


def _text(file: str) -> str:
    """Returns the text of a file without its last newline."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise typer.BadParameter(f"{file} cannot be read: {reason}", param_hint="--content") from error
    return text.removesuffix("\n")


def _show(output: Output, memory: "Memory", base_version: int) -> None:
    if output.as_json:
        output.json(memory)
        return
    from rich.text import Text

    unchanged = memory.version == base_version
    word, style = ("unchanged", "dim") if unchanged else ("deleted", "red") if memory.deleted else ("written", "green")
    line = Text.assemble((word, style), " ", (memory.uri, "bold cyan"))
    line.append(f"\nversion {memory.version}, revision {memory.revision}", style="dim")
    output.say(line)
