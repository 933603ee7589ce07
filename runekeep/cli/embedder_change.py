"""The command that changes the embedder of a running deployment, and what it and `admin status` show of the change."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.formats import format_minute
from runekeep.cli.common.options import admin_command
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from runekeep.client.admin import Admin, EmbedderAction, EmbedderChange

DEFAULT_RATE = 50


@admin_command
def embed(
    admin: "Admin",
    output: Output,
    to: Annotated[
        str, typer.Option("--to", metavar="NAME", help="Embedder to change to: minilm, bilingual, openai, fastembed.")
    ] = "",
    rate: Annotated[
        int,
        typer.Option("--rate", min=0, help="With --to: memories and messages a second; 0: as fast as the embedder is."),
    ] = DEFAULT_RATE,
    pause: Annotated[bool, typer.Option("--pause", help="Make no vectors of older data for now.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after a pause.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Search by the old embedder, drop the new vectors.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Drop the vectors of the old embedder.")] = False,
) -> None:
    """Change the embedder while servers run. Without options, show how far the change is."""
    asked: dict[EmbedderAction, bool] = {
        "start": bool(to), "pause": pause, "resume": resume, "undo": undo, "finish": finish
    }  # fmt: skip
    actions = [action for action, is_asked in asked.items() if is_asked]
    if len(actions) > 1:
        raise typer.BadParameter("Give one of --to, --pause, --resume, --undo and --finish.")
    if not actions:
        change = admin.status().embedder_change
    elif to:
        change = admin.change_embedder("start", embedder=to, rows_per_second=rate)
    else:
        change = admin.change_embedder(actions[0])
    if output.as_json:
        output.json({"embedder_change": change})
        return
    if change is None:
        output.say("The embedder was never changed.")
        return
    for line in describe_change(change):
        output.say(line)


def describe_change(change: "EmbedderChange") -> list[str]:
    """Returns lines that say how far a change is and what comes next."""
    before, after, state = change.from_embedder, change.embedder, change.state
    lines = [
        f"embedder: from {before} ({change.from_model}) to {after} ({change.model}), {state}, started"
        f" {format_minute(change.start_time)}"
    ]
    if state not in ("running", "paused"):
        return [*lines, f"  {change.problem}"] if change.problem else lines
    if change.total_rows < 0:
        lines.append("  counting memories and messages")
    else:
        lines.append(f"  {change.done_rows:,} of {change.total_rows:,} memories and messages have new vectors")
    if change.users_left:
        number = change.users_left
        left = f"  {number:,} {'user is' if number == 1 else 'users are'} still searched by {before}"
        if change.remaining is not None:
            left += f"; about {_format_span(change.remaining)} left"
        lines.append(left)
    else:
        lines.append(
            f"  all users are searched by {after}; the vectors by {before} stay until `runekeep index embed --finish`"
        )
    if change.problem:
        lines.append(f"  it waits: {change.problem}")
    return lines


def _format_span(seconds: float) -> str:
    minutes = max(round(seconds / 60), 1)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
