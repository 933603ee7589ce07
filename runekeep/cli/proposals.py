"""Commands for reviewing what commits would change."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.confirmation import Yes, confirm, refuse_newer_revision
from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.errors import FAILED, fail
from runekeep.cli.common.formats import format_count, format_minute
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output
from runekeep.cli.memories.diff import draw_texts
from runekeep.cli.memories.writes import Content, Fields, parse_fields

if TYPE_CHECKING:
    from runekeep.client.proposals import AcceptResult, Proposal, ProposalDetails, ProposedOperation
    from runekeep.client.sync_client import Client

app = typer.Typer(no_args_is_help=True, help="Review what commits would change: accept, edit or refuse it.")

Task = Annotated[str, typer.Argument(metavar="TASK", help="Task of the commit, as `proposal ls` shows it.")]
Numbers = Annotated[
    list[int] | None, typer.Argument(metavar="NUMBER", min=1, help="Operations; default: all open ones.")
]
Columns = Annotated[bool, typer.Option("--side-by-side", "-y", help="Show before and after in two columns.")]

_STYLES = {"open": "yellow", "accepted": "green", "refused": "red"}


@app.command()
@client_command
def ls(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Argument(metavar="[SESSION]", help="Only those of this session.")] = "",
    decided: Annotated[bool, typer.Option("--decided", help="Also those without an open operation.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of proposals.")] = 50,
) -> None:
    """List the proposals that wait for review, newest first."""
    found = list(islice(client.proposals(session, include_decided=decided), limit))
    if output.as_json:
        output.json({"proposals": found})
        return
    # No table, which would wrap the ids of tasks.
    for one in found:
        output.say(f"{one.task_id}  {format_minute(one.create_time)}  {_describe_open(one)}")
        output.say(f"    {one.session}", "dim")
    if not found:
        output.say(describe_empty_space(client) or "No proposals.", "dim")


@app.command()
@client_command
def show(client: "Client", output: Output, task: Task, side_by_side: Columns = False) -> None:
    """Show what each open operation of a proposal would change in the memories as they are now."""
    found = client.get_proposal(task)
    if output.as_json:
        output.json(found)
    else:
        _draw(output, found, side_by_side=side_by_side)


@app.command()
@client_command
def accept(
    client: "Client",
    output: Output,
    task: Task,
    numbers: Numbers = None,
    yes: Yes = False,
    side_by_side: Columns = False,
) -> None:
    """Apply operations of a proposal, as one revision. Shows them first, and asks for confirmation.

    Operations that no longer fit the memories stay open; the exit status is then 1. So do operations that are too long
    to be shown with the others, unless you name them or give --yes.
    """
    seen = 0
    if not yes:
        found = client.get_proposal(task)
        seen = found.newest_revision
        if not output.as_json:
            _draw(output, found, side_by_side=side_by_side, numbers=numbers or ())
        confirm("Apply this?", yes=yes)
        numbers = numbers or _shown_whole(found)
    with refuse_newer_revision():
        done = client.accept_proposal(task, numbers or (), expected_revision=seen)
    _show_accepted(output, done)
    if done.not_applied:
        raise typer.Exit(FAILED)


@app.command()
@client_command
def edit(
    client: "Client",
    output: Output,
    task: Task,
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="The operation.")],
    fields: Fields = None,
    content: Content = "",
) -> None:
    """Replace values that an operation gives. It still has to be accepted.

    For example: runekeep proposal edit TASK 2 content="Likes black tea."
    """
    given = parse_fields(fields, content)
    if not given:
        raise typer.BadParameter("give FIELD=VALUE or --content", param_hint="FIELD=VALUE")
    changed = client.edit_proposal(task, number, given)
    if output.as_json:
        output.json(changed)
    else:
        output.say(f"Operation {number} is changed. {_describe_open(changed)}.", "green")


@app.command()
@client_command
def refuse(
    client: "Client",
    output: Output,
    task: Task,
    numbers: Numbers = None,
    yes: Yes = False,
) -> None:
    """Refuse operations of a proposal and delete their text."""
    which = ", ".join(map(str, numbers)) if numbers else "all that are open"
    confirm(f"Refuse {which} and delete the text?", yes=yes)
    changed = client.refuse_proposal(task, numbers or ())
    if output.as_json:
        output.json(changed)
    else:
        output.say(f"Refused. {_describe_open(changed)}.", "green")


def _describe_open(proposal: "Proposal") -> str:
    total = format_count(proposal.total_operations, "operation", "operations")
    return f"{proposal.open_operations} of {total} open"


def _draw(
    output: Output, found: "ProposalDetails", *, side_by_side: bool, numbers: "list[int] | tuple[int, ...]" = ()
) -> None:
    from rich.text import Text

    proposal = found.proposal
    head = Text(proposal.archive_uri, style="bold cyan")
    head.append(f"\n{_describe_open(proposal)}; deleted at {format_minute(proposal.expire_time)}", style="dim")
    output.say(head)
    for one in found.operations:
        if not numbers or one.number in numbers:
            _draw_operation(output, one, side_by_side=side_by_side)
    if found.texts_omitted:
        output.say("\nSome operations are too long to be shown with the others: decide about those first.", "yellow")


def _shown_whole(found: "ProposalDetails") -> list[int]:
    """Returns the open operations to apply if none are named: all of them, but for those that were not shown."""
    if not found.texts_omitted:
        return []
    shown = [one.number for one in found.operations if one.state == "open" and not one.texts_omitted]
    if not shown:
        fail("No operation can be shown whole", "Name the operations that you want to apply.")
    return shown


def _draw_operation(output: Output, one: "ProposedOperation", *, side_by_side: bool) -> None:
    from rich.text import Text

    line = Text.assemble(f"\n{one.number:>3}  ", (one.state, f"bold {_STYLES[one.state]}"))
    line.append(f"  {one.action} {one.memory_type}")
    if one.state == "accepted":
        line.append(f", revision {one.revision}" if one.revision else ", nothing to change", style="dim")
    line.append("  takes something away" if one.removes else "", style="red")
    line.append("  edited" if one.edited else "", style="dim")
    output.say(line)
    if one.reason:
        output.say(one.reason, "italic dim")
    if one.problem:
        output.say(f"It cannot be applied: {one.problem.reason}: {one.problem.message}", "red")
        for uri in one.uris:
            output.say(uri, "dim")
    elif one.texts_omitted:
        output.say("Not shown, because it is too long. It is about:", "yellow")
        for uri in one.uris:
            output.say(uri, "dim")
    elif one.state == "open" and not one.changes:
        output.say("All of it is there already.", "dim")
    for change in one.changes:
        output.say(change.uri, "cyan")
        draw_texts(output, change.before, change.after, side_by_side=side_by_side)


def _show_accepted(output: Output, done: "AcceptResult") -> None:
    if output.as_json:
        output.json(done)
        return
    count = format_count(len(done.accepted), "operation is", "operations are")
    made = f"; revision {done.revision}" if done.revision else ""
    output.say(f"{count} accepted{made}. {_describe_open(done.proposal)}.", "green")
    for problem in done.not_applied:
        output.say(f"Operation {problem.number} stays open: {problem.reason}: {problem.message}", "red")
