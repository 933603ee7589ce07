"""Commands about buckets: the themes of a session as timelines."""

from typing import TYPE_CHECKING, Annotated

import typer

from runekeep.cli.common.errors import FAILED
from runekeep.cli.common.formats import format_count, format_minute
from runekeep.cli.common.options import SessionId, client_command
from runekeep.cli.common.output import Output
from runekeep.cli.turns.rendering import render_signal
from runekeep.cli.turns.turns import Wait

if TYPE_CHECKING:
    from rich.tree import Tree

    from runekeep.client.sync_client import Client
    from runekeep.client.turns.results import BucketSignal, MemoryBucket

_KINDS = {"assertions": "green", "exceptions": "red", "facts": "blue"}


@client_command
def buckets(
    client: "Client",
    output: Output,
    session: SessionId,
    everything: Annotated[bool, typer.Option("--all", help="Also show disabled buckets.")] = False,
) -> None:
    """Show the buckets of a session with their timelines."""
    found = client.session(session).buckets(show_disabled=everything)
    if output.as_json:
        output.json(found)
        return
    for one in found.buckets:
        output.console.print(render_bucket(one))
    if not found.buckets:
        disabled = 0 if everything else len(client.session(session).buckets(show_disabled=True).buckets)
        output.say(
            f"No enabled buckets; --all shows {format_count(disabled, 'disabled one', 'disabled ones')}."
            if disabled
            else "No buckets; `runekeep turn reconcile` makes them from turns.",
            "dim",
        )
    if found.last_covered_time:
        output.say(f"Turns up to {format_minute(found.last_covered_time)} are in them.", "dim")


@client_command
def bucket(
    client: "Client",
    output: Output,
    session: SessionId,
    bucket_id: Annotated[str, typer.Argument(metavar="BUCKET", help="Id, as `turn buckets` prints it.")],
    name: Annotated[str | None, typer.Option("--name", help="A new name; the id stays.")] = None,
    short_desc: Annotated[str | None, typer.Option("--description", help="A new description.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether agents see it.")] = None,
) -> None:
    """Rename, describe, enable or disable a bucket."""
    if name is None and short_desc is None and enabled is None:
        raise typer.BadParameter("give --name, --description, --enable or --disable", param_hint="--name")
    changed = client.session(session).update_bucket(bucket_id, name=name, short_desc=short_desc, enabled=enabled)
    if output.as_json:
        output.json(changed)
    else:
        output.console.print(render_bucket(changed))


@client_command
def reconcile(client: "Client", output: Output, session: SessionId, wait: Wait = False) -> None:
    """Queue a task that folds new fingerprints of a session into its buckets."""
    task_id = client.session(session).reconcile_buckets()
    if wait and task_id:
        from runekeep.cli.tasks.results import show_task
        from runekeep.cli.tasks.tasks import follow

        task = follow(client, output, task_id, updates=False)
        if output.as_json:
            output.json({"task_id": task_id, "task": task})
        else:
            show_task(output, task)
        if task.status != "completed":
            raise typer.Exit(FAILED)
    elif output.as_json:
        output.json({"task_id": task_id, "task": None} if wait else {"task_id": task_id})
    elif task_id:
        output.say(f"Follow it: runekeep task watch {task_id}", "dim")
    else:
        output.say("Nothing is new since the last reconciliation.")


def render_bucket(one: "MemoryBucket") -> "Tree":
    """Returns a bucket as a tree: its slices from old to new, and their signals with weights."""
    from rich.text import Text
    from rich.tree import Tree

    head = Text.assemble((one.name, "bold"), "  ", (one.bucket_id, "cyan"))
    if one.state == "disabled":
        head.append("  disabled", style="red")
    tree = Tree(head, guide_style="dim")
    for text in dict.fromkeys((one.short_desc, one.objective_text)):
        if text:
            tree.add(Text(text, style="italic"))
    for piece in one.timeline:
        span = f"{format_minute(piece.start_time)} to {format_minute(piece.end_time)}"
        branch = tree.add(Text.assemble((span, "dim"), f"  {piece.objective_hint}"))
        for kind, style in _KINDS.items():
            weighted: list[BucketSignal] = getattr(piece, kind)
            for each in weighted:
                said = Text.assemble((f"{kind[:-1]} ", style), render_signal(each.signal))
                said.append(f"  {each.weight:.2f} of {', '.join(each.support_turn_ids)}", style="yellow")
                branch.add(said)
    return tree
