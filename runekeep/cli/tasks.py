"""Commands about background work: of commits, and about turns."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, cast

import typer

from runekeep.cli.options import calling
from runekeep.cli.output import FAILED, Output
from runekeep.cli.records import show_record
from runekeep.cli.task_results import STYLES, outcome_in_brief, show_task

if TYPE_CHECKING:
    from runekeep.client.face import Client
    from runekeep.client.results import Task, TaskStatus

app = typer.Typer(no_args_is_help=True, help="Background work: how it goes and what came of it.")

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Id, as the command that queued it says.")]


@app.command("list")
@calling
def list_(
    client: "Client",
    output: Output,
    session: Annotated[str, typer.Option("--session", help="Only of this session.")] = "",
    status: Annotated[list[str] | None, typer.Option("--status", help="Only with this status; may repeat.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 50,
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
            task["task_id"],
            Text(task["status"], style=STYLES[task["status"]]),
            task["session"].rsplit("/", 1)[-1],
            outcome_in_brief(task),
        )
        for task in tasks
    ]
    output.rows(("task", "status", "session", "outcome"), rows, "No tasks.", whole="task")


@app.command()
@calling
def show(client: "Client", output: Output, task: TaskId) -> None:
    """Show how a task stands."""
    show_task(output, client.get_task(task))


@app.command()
@calling
def watch(client: "Client", output: Output, task: TaskId) -> None:
    """Follow a task to its end; status 1 unless it completes. With --json, one line an update."""
    ended = follow(client, output, task, updates=True)
    if not output.as_json:
        show_task(output, ended)
    if ended["status"] != "completed":
        raise typer.Exit(FAILED)


@app.command()
@calling
def cancel(
    client: "Client",
    output: Output,
    task: TaskId,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the task.")] = "",
) -> None:
    """Cancel an open task; its result is never applied."""
    show_task(output, client.cancel_task(task, reason))


@app.command()
@calling
def retry(client: "Client", output: Output, task: TaskId) -> None:
    """Queue a failed or cancelled task again."""
    show_task(output, client.retry_task(task))


@app.command()
@calling
def record(client: "Client", output: Output, task: TaskId) -> None:
    """Show what the attempts at a task were made of: models, prompts by digest, raw answers.

    With --json the record can be kept as a test: it is what the model's answers can be replayed from.
    """
    show_record(output, client.extraction_record(task))


def follow(client: "Client", output: Output, task_id: str, *, updates: bool) -> "Task":
    """Watches a task to its end, with a bar for people; for programs with a line an update, if `updates`."""
    if output.as_json:
        for update in client.watch_task(task_id):
            if updates:
                output.json(update)
            if update["kind"] == "ended":
                return update["task"]
        raise AssertionError("a watch ends with the task")
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=output.console, transient=True) as progress:
        bar = progress.add_task("waiting", total=100)
        for update in client.watch_task(task_id):
            match update["kind"]:
                case "progress":
                    now = update["progress"]
                    # A part that is away may be reported before the first phase.
                    phase = (now["phase"] or "waiting").replace("_", " ")
                    told = now["message"] if now["waiting_for"] else f"{phase}: {now['message']}"
                    progress.update(bar, completed=now["percent"], description=told[:40])
                case "state":
                    progress.update(bar, description=update["status"])
                case "attempt_failed":
                    progress.console.print(
                        f"attempt {update['attempt']} failed: {update['error']['message']}",
                        style="yellow",
                        markup=False,
                    )
                case "ended":
                    return update["task"]
    raise AssertionError("a watch ends with the task")
