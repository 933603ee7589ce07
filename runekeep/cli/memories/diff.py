"""The command that shows what a commit changed; compares two texts."""

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.errors import fail
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from runekeep.client.sessions.results import MemoryDiff
    from runekeep.client.sync_client import Client


@client_command
def diff(
    client: "Client",
    output: Output,
    what: Annotated[str, typer.Argument(metavar="ARCHIVE|SESSION", help="URI of an archive, or a session.")],
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", "-y", help="Show before and after in two columns.")
    ] = False,
) -> None:
    """Show what a commit changed; for a session, its newest finished commit."""
    archive_uri = what
    if "/history/archive_" not in what:
        done = (one.uri for one in client.get_session(what).archives() if one.state == "done")
        archive_uri = next(done, "")
        if not archive_uri:
            fail("the session has no finished commit yet", "See its commits: `runekeep session show SESSION`.")
    found = client.memory_diff(archive_uri)
    if output.as_json:
        output.json(found)
    else:
        draw_diff(output, found, side_by_side=side_by_side)


def draw_diff(output: Output, found: "MemoryDiff", *, side_by_side: bool = False) -> None:
    """Prints every change of a commit, before and after."""
    from rich.text import Text

    counts = found.summary
    head = Text(found.archive_uri, style="bold cyan")
    head.append(f"\n{counts.total_adds} new, {counts.total_updates} changed, {counts.total_deletes} deleted")
    head.append(f"; revision {found.revision}", style="dim")
    output.say(head)
    operations = found.operations
    changes = [("new", "green", change, "", change.after) for change in operations.adds]
    changes += [("changed", "yellow", change, change.before, change.after) for change in operations.updates]
    changes += [("deleted", "red", change, change.deleted_content, "") for change in operations.deletes]
    for word, style, change, before, after in changes:
        output.say(Text.assemble("\n", (word, f"bold {style}"), f" {change.uri}"))
        if change.reason:
            output.say(change.reason, "italic dim")
        draw_texts(output, before, after, side_by_side=side_by_side)


def draw_texts(output: Output, before: str, after: str, *, side_by_side: bool = False) -> None:
    """Prints the difference of two texts."""
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
