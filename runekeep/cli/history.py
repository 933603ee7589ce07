"""Commands about the history of memories: revisions, differences, rollback."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.confirmation import Yes, confirm, refuse_newer_revision
from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.errors import fail
from runekeep.cli.common.formats import format_count, format_minute
from runekeep.cli.common.options import SessionId, client_command, parse_as_of, parse_revision
from runekeep.cli.common.output import Output
from runekeep.cli.memories.diff import draw_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

    from runekeep.client.history import ChangedMemory, Revision, RollbackConflict, RollbackResult
    from runekeep.client.sync_client import Client

app = typer.Typer(no_args_is_help=True, help="History of memories: revisions, differences, rollback.")

_STATE = "Number of a revision, or a time such as 2026-05-04T16:00"
Columns = Annotated[bool, typer.Option("--side-by-side", "-y", help="Show before and after in two columns.")]


@app.command(name="list")
@client_command
def list_(
    client: "Client",
    output: Output,
    uri: Annotated[str, typer.Argument(metavar="[URI]", help="Only revisions that changed this memory.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of revisions.")] = 50,
) -> None:
    """List revisions, newest first, with their origin and the number of new, changed and deleted memories."""
    found = list(islice(client.revisions(uri), limit))
    if output.as_json:
        output.json({"revisions": found})
        return
    # No table, which would wrap the URIs of archives.
    for one in found:
        counts = f"+{one.adds} ~{one.updates} -{one.deletes}"
        output.say(f"{one.number:>8}  {format_minute(one.create_time)}  {counts:<12}  {_describe_origin(one)}")
        if one.archive_uri:
            output.say(f"          {one.archive_uri}")
    if not found:
        output.say(describe_empty_space(client) or "No revisions.", "dim")


@app.command()
@client_command
def diff(
    client: "Client",
    output: Output,
    earlier: Annotated[str, typer.Argument(metavar="FROM", help=f"{_STATE}; 0: before the first revision.")],
    later: Annotated[str, typer.Argument(metavar="[TO]", help=f"{_STATE}; default: now.")] = "",
    below: Annotated[
        str, typer.Option("--below", metavar="URI", help="Only this memory, or only below this URI.")
    ] = "",
    side_by_side: Columns = False,
) -> None:
    """Show the differences between two revisions."""
    before, now = parse_as_of(earlier, "FROM"), parse_as_of(later, "TO")
    if now == 0:
        raise typer.BadParameter("0 is before the first revision; leave TO out for the current state", param_hint="TO")
    # For the client, None is before the first revision.
    found = client.diff_revisions(before or None, now, below)
    if output.as_json:
        output.json(found)
        return
    from rich.text import Text

    output.say(Text(f"revision {found.from_revision} to {found.to_revision}", style="bold cyan"))
    _draw(output, found.changes, side_by_side=side_by_side)
    if not found.changes:
        output.say("Nothing is different.", "dim")


@app.command()
@client_command
def rollback(
    client: "Client",
    output: Output,
    what: Annotated[
        str,
        typer.Argument(metavar="REVISION|ARCHIVE", help="Number of a revision, or URI of the archive of its commit."),
    ],
    preview: Annotated[bool, typer.Option("--preview", help="Show what would change, and change nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Discard what later revisions changed in the same memories.")
    ] = False,
    yes: Yes = False,
    side_by_side: Columns = False,
) -> None:
    """Undo what a revision changed, as a new revision. Shows the changes first, and asks for confirmation."""
    target: int | str = parse_revision(what, "REVISION") if what.isdecimal() else what
    seen = 0
    if preview or not yes:
        planned = client.rollback(target, preview=True)
        seen = planned.newest_revision
        if preview and output.as_json:
            output.json(planned)
            return
        if not output.as_json:
            _draw(output, planned.changes, side_by_side=side_by_side)
            for line in _conflicts(planned.conflicts):
                output.say(line, "yellow")
            if planned.texts_omitted:
                output.say("Some texts are left out, because they are too long: see `runekeep history diff`.", "dim")
        if preview or not planned.changes:
            _show_result(output, planned, preview=preview)
            return
        if planned.conflicts and not force:
            _refuse_conflicts(output, planned.conflicts, "later revisions changed these memories too")
        confirm(f"Take back {what}?", yes=yes)
    with refuse_newer_revision():
        done = client.rollback(target, force=force, expected_revision=seen)
    _show_result(output, done, preview=False)


@client_command
def rollback_session(
    client: "Client",
    output: Output,
    session: SessionId,
    preview: Annotated[bool, typer.Option("--preview", help="Show what would change, and change nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Discard what other revisions changed later in the same memories.")
    ] = False,
    yes: Yes = False,
    side_by_side: Columns = False,
) -> None:
    """Undo what the commits of a session and its accepted proposals changed, the newest first. Shows the changes first,
    and asks for confirmation."""
    planned = client.rollback_session(session, preview=True)
    if preview and output.as_json:
        output.json(planned)
        return
    if not output.as_json:
        if planned.open_commits:
            waiting = format_count(planned.open_commits, "commit is", "commits are")
            advice = f"see `runekeep task list --session {session}`"
            output.say(f"{waiting} not finished, and not undone: {advice}.", "yellow")
        if preview or not yes:
            _draw(output, planned.changes, side_by_side=side_by_side)
            if planned.texts_omitted or planned.changes_omitted:
                output.say("Not all is shown, because it is too long: see `runekeep history diff`.", "dim")
        for line in _conflicts(planned.conflicts):
            output.say(line, "yellow")
    is_empty = not planned.changes and not planned.changes_omitted
    if is_empty and not output.as_json:
        output.say("There is nothing to take back.", "dim")
    if preview or is_empty:
        if output.as_json:
            output.json(planned)
        return
    if (planned.conflicts or planned.conflicts_omitted) and not force:
        _refuse_conflicts(output, planned.conflicts, "other revisions changed these memories later")
    confirm(f"Take back what {session} changed?", yes=yes)
    with refuse_newer_revision():
        done = client.rollback_session(session, force=force, expected_revision=planned.newest_revision)
    if output.as_json:
        output.json(done)
        return
    changed = format_count(len(done.changes), "memory is", "memories are")
    made = format_count(len(done.revisions), "revision is", "revisions are")
    output.say(f"{changed} as before the session. {made} written, the newest is {done.revisions[-1]}.", "green")


@app.command()
@client_command
def sources(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Id of a message of the session.")],
) -> None:
    """List the memories that came from a message."""
    found = list(client.message_memories(session, message))
    if output.as_json:
        output.json({"memories": found})
        return
    for one in found:
        since = ", deleted since" if one.deleted else ", replaced since" if one.superseded_revision else ""
        output.say(f"{one.uri}\n    version {one.version}{since}")
    if not found:
        output.say("Nothing came from it.", "dim")


def _describe_origin(revision: "Revision") -> str:
    words: list[str] = [revision.origin]
    if revision.rolled_back:
        words.append(f"of {revision.rolled_back}")
    if revision.rolled_back_by:
        words.append(f"(taken back by {revision.rolled_back_by})")
    return " ".join(words)


def _draw(output: Output, changes: "Sequence[ChangedMemory]", *, side_by_side: bool) -> None:
    from rich.text import Text

    for change in changes:
        word, style = "changed", "yellow"
        # If both are empty, the texts were left out.
        if bool(change.before) != bool(change.after):
            word, style = ("deleted", "red") if change.before else ("new", "green")
        output.say(Text.assemble((word, f"bold {style}"), f" {change.uri}"))
        draw_texts(output, change.before, change.after, side_by_side=side_by_side)
        output.say("")


def _conflicts(conflicts: "Sequence[RollbackConflict]") -> "Iterator[str]":
    for conflict in conflicts:
        numbers = ", ".join(map(str, conflict.revisions))
        yield f"{conflict.uri} was changed later too, by revision {numbers}: that would be lost."


def _refuse_conflicts(output: Output, conflicts: "Sequence[RollbackConflict]", problem: str) -> "NoReturn":
    # --json has not printed them.
    named = "".join(f"\n{line}" for line in _conflicts(conflicts)) if output.as_json else ""
    fail(f"{problem}{named}", "Take those back first with `runekeep history rollback REVISION`, or give --force.")


def _show_result(output: Output, done: "RollbackResult", *, preview: bool) -> None:
    if output.as_json:
        output.json(done)
    elif not done.changes:
        output.say("There is nothing to take back.", "dim")
    elif not preview:
        changed = format_count(len(done.changes), "memory is", "memories are")
        output.say(f"{changed} as before; revision {done.revision}.", "green")
