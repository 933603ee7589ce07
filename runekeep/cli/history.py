"""Commands about what happened to memories, and about taking it back."""

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.memories import draw_texts
from runekeep.cli.options import calling
from runekeep.cli.output import Output, counted, fail, minute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runekeep.client.arguments import Moment
    from runekeep.client.face import Client
    from runekeep.client.history_results import ChangedMemory, Revision, RolledBack

app = typer.Typer(no_args_is_help=True, help="What happened to memories, and the way back.")

_HIGHEST = 2**63 - 1
_STATE = "The number of a revision, or a time such as 2026-05-04T16:00"
Columns = Annotated[bool, typer.Option("--side-by-side", "-y", help="Before and after in two columns.")]


@app.command(name="list")
@calling
def list_(
    client: "Client",
    output: Output,
    uri: Annotated[str, typer.Argument(metavar="[URI]", help="Only what changed this memory.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 50,
) -> None:
    """List revisions, newest first: who made them, and how many memories are new, changed, deleted."""
    found = list(islice(client.revisions(uri), limit))
    if output.as_json:
        output.json({"revisions": found})
        return
    # No table: it would break the URIs of archives, which are to be copied.
    for one in found:
        counts = f"+{one['adds']} ~{one['updates']} -{one['deletes']}"
        output.say(f"{one['number']:>8}  {minute(one['create_time'])}  {counts:<12}  {_made_by(one)}")
        if one["archive_uri"]:
            output.say(f"          {one['archive_uri']}")
    if not found:
        output.say("No revisions.", "dim")


@app.command()
@calling
def diff(
    client: "Client",
    output: Output,
    earlier: Annotated[str, typer.Argument(metavar="FROM", help=f"{_STATE}; 0: before the first one.")],
    later: Annotated[str, typer.Argument(metavar="[TO]", help=f"{_STATE}; left out: now.")] = "",
    below: Annotated[str, typer.Option("--below", metavar="URI", help="Only this memory, or what is below.")] = "",
    side_by_side: Columns = False,
) -> None:
    """Show what is different between two revisions."""
    before, now = _moment(earlier, "FROM"), _moment(later, "TO")
    if now == 0:
        raise typer.BadParameter("before the first revision there is nothing; leave it out for now", param_hint="TO")
    # A client takes None for before the first one.
    found = client.diff_revisions(before or None, now, below)
    if output.as_json:
        output.json(found)
        return
    from rich.text import Text

    output.say(Text(f"revision {found['from_revision']} to {found['to_revision']}", style="bold cyan"))
    _draw(output, found["changes"], side_by_side=side_by_side)
    if not found["changes"]:
        output.say("Nothing is different.", "dim")


@app.command()
@calling
def rollback(
    client: "Client",
    output: Output,
    what: Annotated[str, typer.Argument(metavar="REVISION|ARCHIVE", help="A number, or the archive of a commit.")],
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would change.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also what later revisions changed; that is lost.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    side_by_side: Columns = False,
) -> None:
    """Take back what a revision changed, as a new revision. Shows it first, and asks."""
    from runekeep.client.errors import AbortedError

    target: int | str = _number(what, "REVISION") if what.isdecimal() else what
    seen = 0
    if preview or not yes:
        planned = client.rollback(target, preview=True)
        seen = planned["newest_revision"]
        if preview and output.as_json:
            output.json(planned)
            return
        if not output.as_json:
            _draw(output, planned["changes"], side_by_side=side_by_side)
            for line in _conflicts(planned):
                output.say(line, "yellow")
            if planned["texts_omitted"]:
                output.say("Some texts are left out, together they are too long: see `runekeep history diff`.", "dim")
        if preview or not planned["changes"]:
            _say_end(output, planned, preview=preview)
            return
        if planned["conflicts"] and not force:
            # With --json they have not been shown.
            named = "".join(f"\n{line}" for line in _conflicts(planned)) if output.as_json else ""
            fail(f"later revisions changed these memories too{named}", "Take those back first, or give --force.")
        # On stderr: with --json stdout holds the answer alone.
        typer.confirm(f"Take back {what}?", abort=True, err=True)
    try:
        done = client.rollback(target, force=force, expected_revision=seen)
    except AbortedError as error:
        if error.reason != "VERSION_MISMATCH":
            raise
        fail(str(error), "Others wrote meanwhile; give the command again to see what would change now.")
    _say_end(output, done, preview=False)


@app.command()
@calling
def sources(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id or URI.")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Id of a message of it.")],
) -> None:
    """List the memories that came from a message."""
    found = list(client.message_memories(session, message))
    if output.as_json:
        output.json({"memories": found})
        return
    for one in found:
        since = ", deleted since" if one["deleted"] else ", replaced since" if one["superseded_revision"] else ""
        output.say(f"{one['uri']}\n    version {one['version']}{since}")
    if not found:
        output.say("Nothing came from it.", "dim")


def _moment(text: str, name: str) -> "Moment | None":
    """None for nothing."""
    if not text:
        return None
    if text.isdecimal():
        return _number(text, name)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("it is the number of a revision, or a time", param_hint=name) from None


def _number(text: str, name: str) -> int:
    """Raises typer.BadParameter for one that no revision can have."""
    number = int(text)
    if number > _HIGHEST:
        raise typer.BadParameter("there is no such revision; see `runekeep history list`", param_hint=name)
    return number


def _made_by(revision: "Revision") -> str:
    words: list[str] = [revision["origin"]]
    if revision["rolled_back"]:
        words.append(f"of {revision['rolled_back']}")
    if revision["rolled_back_by"]:
        words.append(f"(taken back by {revision['rolled_back_by']})")
    return " ".join(words)


def _draw(output: Output, changes: "Sequence[ChangedMemory]", *, side_by_side: bool) -> None:
    from rich.text import Text

    for change in changes:
        word, style = "changed", "yellow"
        # Of one without both the texts were left out.
        if bool(change["before"]) != bool(change["after"]):
            word, style = ("deleted", "red") if change["before"] else ("new", "green")
        output.say(Text.assemble((word, f"bold {style}"), f" {change['uri']}"))
        draw_texts(output, change["before"], change["after"], side_by_side=side_by_side)
        output.say("")


def _conflicts(planned: "RolledBack") -> "Iterator[str]":
    for conflict in planned["conflicts"]:
        numbers = ", ".join(map(str, conflict["revisions"]))
        yield f"{conflict['uri']} was changed later too, by revision {numbers}: that would be lost."


def _say_end(output: Output, done: "RolledBack", *, preview: bool) -> None:
    if output.as_json:
        output.json(done)
    elif not done["changes"]:
        output.say("There is nothing to take back.", "dim")
    elif not preview:
        changed = counted(len(done["changes"]), "memory is", "memories are")
        output.say(f"{changed} as before; revision {done['revision']}.", "green")
