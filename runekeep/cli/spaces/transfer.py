"""Commands that export a user's data and import an export."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.errors import fail
from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from runekeep.client.spaces.results import SpaceContents
    from runekeep.client.sync_client import Client

_SHOWN = {
    "sessions": ("session", "sessions"),
    "messages": ("message", "messages"),
    "archives": ("archive", "archives"),
    "memories": ("memory", "memories"),
    "memory_versions": ("version of memories", "versions of memories"),
    "turns": ("turn", "turns"),
    "tasks": ("task", "tasks"),
}


@client_command
def export(
    client: "Client",
    output: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="File to write, such as me.tar.gz.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write everything of a user to one archive of Markdown and JSON that can be imported again.

    The file appears once it is complete.
    """
    if file.exists() and not force:
        fail(f"{file} exists already", "Choose another name, or replace it with --force.")
    empty_notice = "" if output.as_json else describe_empty_space(client)
    with _bar(output, "exporting", None) as (progress, bar):
        try:
            written = client.export_space(file, progress=lambda done: progress.update(bar, completed=done))
        except OSError as error:
            fail(f"{file} cannot be written: {error.strerror}")
    if output.as_json:
        output.json({"file": str(file), "bytes": written})
        return
    output.say(f"Wrote {written:,} bytes to {file}.")
    if empty_notice:
        output.say(empty_notice, "yellow")


@client_command
def import_(
    client: "Client",
    output: Output,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="File that `runekeep export` wrote.")
    ],
    request_id: Annotated[
        str,
        typer.Option(
            "--request-id",
            metavar="ID",
            help="Id of the request. Give it again to repeat an import whose result is unknown.",
        ),
    ] = "",
) -> None:
    """Import an export, as a whole or not at all. The user must have no data."""
    with _bar(output, "importing", file.stat().st_size) as (progress, bar):
        try:
            made = client.import_space(
                file, request_id=request_id or None, progress=lambda done: progress.update(bar, completed=done)
            )
        except OSError as error:
            fail(f"{file} cannot be read: {error.strerror}")
    if output.as_json:
        output.json(made)
        return
    output.say(f"Imported {describe_contents(made.contents)}.")
    if made.revision_offset:
        output.say(f"Revisions are those of the export, and {made.revision_offset} more.", "dim")


def describe_contents(contents: "SpaceContents") -> str:
    """Returns how much of what an import brought."""
    words = [format_count(number, *names) for name, names in _SHOWN.items() if (number := getattr(contents, name))]
    return ", ".join(words) or "nothing: the export is of a user who had nothing"


@contextmanager
def _bar(output: Output, doing: str, total: int | None) -> "Iterator[tuple[Progress, TaskID]]":
    """Shows a progress bar; without a total, the bytes so far."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True) if output.as_json else output.console
    with Progress(*columns, console=console, disable=output.as_json, transient=True) as progress:
        yield progress, progress.add_task(doing, total=total)
