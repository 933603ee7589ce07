"""Commands that take a user's data along, and bring it back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import Output, counted, fail

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from runekeep.client.erasure_results import SpaceContents
    from runekeep.client.face import Client

_SHOWN = {
    "sessions": ("session", "sessions"),
    "messages": ("message", "messages"),
    "archives": ("archive", "archives"),
    "memories": ("memory", "memories"),
    "memory_versions": ("version of memories", "versions of memories"),
    "turns": ("turn", "turns"),
    "tasks": ("task", "tasks"),
}


@calling
def export(
    client: "Client",
    output: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="Where to; such as me.tar.gz.")],
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write everything of a user to one archive of Markdown and JSON that can be imported again.

    The file is there when it is whole.
    """
    if file.exists() and not force:
        fail(f"{file} is there already", "Choose another name, or write over it with --force.")
    with _bar(output, "exporting", None) as (progress, bar):
        try:
            written = client.export_space(file, progress=lambda done: progress.update(bar, completed=done))
        except OSError as error:
            fail(f"{file} cannot be written: {error.strerror}")
    if output.as_json:
        output.json({"file": str(file), "bytes": written})
    else:
        output.say(f"Wrote {written:,} bytes to {file}.")


@calling
def import_(
    client: "Client",
    output: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="An export.")],
    request_id: Annotated[
        str,
        typer.Option("--request-id", metavar="ID", help="The same again, when it is not known whether it was done."),
    ] = "",
) -> None:
    """Make an export the data of a user who has nothing: all of it or nothing."""
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
    output.say(f"Imported {_listed(made['contents'])}.")
    if made["revision_offset"]:
        output.say(f"Revisions are those of the export, and {made['revision_offset']} more.", "dim")


def _listed(contents: "SpaceContents") -> str:
    words = [
        counted(number, *names)
        for name, names in _SHOWN.items()
        if (number := contents[name])  # type: ignore[literal-required]  # keys of it
    ]
    return ", ".join(words) or "nothing: the export is of a user who had nothing"


@contextmanager
def _bar(output: Output, doing: str, total: int | None) -> "Iterator[tuple[Progress, TaskID]]":
    """A bar for people; without a total, what has been done so far."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True) if output.as_json else output.console
    with Progress(*columns, console=console, disable=output.as_json, transient=True) as progress:
        yield progress, progress.add_task(doing, total=total)
