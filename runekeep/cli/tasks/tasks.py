"""Commands about tasks: background work of commits and turns."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, cast

import typer

from runekeep.cli.common.empty_space import describe_empty_space
from runekeep.cli.common.errors import FAILED
from runekeep.cli.common.options import client_command
from runekeep.cli.common.output import Output
from runekeep.cli.tasks.records import show_record
from runekeep.cli.tasks.results import STYLES, show_task, summarize_outcome

if TYPE_CHECKING:
    from runekeep.client.sync_client import Client
    from runekeep.client.tasks.results import Task, TaskStatus

app = typer.Typer(no_args_is_help=True, help="Background tasks: state, progress, results.")

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Id, as the command that queued it printed.")]


@app.command("list")
@client_command
def list_(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Option("--session", help="Only of this session.")] = "",
    status: Annotated[list[str] | None, typer.Option("--status", help="Only with this status; may repeat.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of tasks.")] = 50,
) -> None:
    """List tasks, newest first."""
    states = cast("list[TaskStatus]", status or [])
    tasks = list(islice(client.list_tasks(session, states), limit))
    if output.as_json:
        output.json({"tasks": tasks})
        return
    from rich.text import Text

    rows = [
        (
            task.task_id,
            Text(task.status, style=STYLES[task.status]),
            task.session.rsplit("/", 1)[-1],
            summarize_outcome(task),
        )
        for task in tasks
    ]
    nothing = "" if tasks else describe_empty_space(client) or "No tasks."
    output.rows(("task", "status", "session", "outcome"), rows, nothing, stack=True)


@app.command()
@client_command
def show(client: "Client", output: Output, task: TaskId) -> None:
    """Show the state and result of a task."""
    show_task(output, client.get_task(task))


@app.command()
@client_command
def watch(client: "Client", output: Output, task: TaskId) -> None:
    """Follow a task to its end. The exit status is 1 unless it completes. --json prints each update."""
    ended = follow(client, output, task, updates=True)
    if not output.as_json:
        show_task(output, ended)
    if ended.status != "completed":
        raise typer.Exit(FAILED)


@app.command()
@client_command
def cancel(
    client: "Client",
    output: Output,
    task: TaskId,
    reason: Annotated[str, typer.Option("--reason", help="Reason to store with the task.")] = "",
) -> None:
    """Cancel an open task. Its result is never applied."""
    show_task(output, client.cancel_task(task, reason))


@app.command()
@client_command
def retry(client: "Client", output: Output, task: TaskId) -> None:
    """Queue a failed or cancelled task again."""
    show_task(output, client.retry_task(task))


@app.command()
@client_command
def record(client: "Client", output: Output, task: TaskId) -> None:
    """Show the attempts at a task: models, digests of prompts, raw answers.

    With --json you can store the record as a test that replays the answers of the model.
    """
    show_record(output, client.extraction_record(task))


def follow(client: "Client", output: Output, task_id: str, *, updates: bool) -> "Task":
    """Follows a task to its end and returns it. Shows a progress bar; with JSON output prints each update, if
    `updates`."""
    if output.as_json:
        for update in client.watch_task(task_id):
            if updates:
                output.json(update)
            if update.kind == "ended":
                return update.task
        raise AssertionError("a watch ends with the task")
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=output.console, transient=True) as progress:
        bar = progress.add_task("waiting", total=100)
        for update in client.watch_task(task_id):
            match update.kind:
                case "progress":
                    now = update.progress
                    # A part that is away may be reported before the first phase.
                    phase = (now.phase or "waiting").replace("_", " ")
                    text = now.message if now.waiting_for else f"{phase}: {now.message}"
                    progress.update(bar, completed=now.percent, description=text[:40])
                case "state":
                    progress.update(bar, description=update.status)
                case "attempt_failed":
                    progress.console.print(
                        f"attempt {update.attempt} failed: {update.error.message}",
                        style="yellow",
                        markup=False,
                    )
                case "ended":
                    return update.task
    raise AssertionError("a watch ends with the task")
