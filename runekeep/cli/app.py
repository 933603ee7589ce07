"""The tree of commands."""

import typer

from runekeep.cli import (
    admin,
    backups,
    doctor,
    documents,
    erasing,
    exports,
    health,
    history,
    ingest,
    memories,
    memory_writes,
    processes,
    recalls,
    sessions,
    tasks,
    turn_buckets,
    turn_reactions,
    turn_selections,
    turns,
    usage,
    users,
)
from runekeep.cli.options import AsJson
from runekeep.cli.output import Output

app = typer.Typer(
    name="runekeep",
    help="Durable, transactional session memory for fleets of AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Unlike the default it joins the lines of a docstring's paragraph.
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(processes.up)
app.command(context_settings=processes.PASS_ON)(processes.serve)
app.command(context_settings=processes.PASS_ON)(processes.extractor)
app.command()(ingest.ingest)
app.command()(recalls.recall)
sessions.app.command()(recalls.context)
app.add_typer(sessions.app, name="session")
app.add_typer(tasks.app, name="task")
memories.app.command()(documents.glob)
memories.app.command()(documents.grep)
memories.app.command()(memory_writes.write)
memories.app.command()(memory_writes.edit)
memories.app.command()(memory_writes.delete)
app.add_typer(memories.app, name="memory")
turns.app.command()(turn_selections.select)
turns.app.command()(turn_reactions.feedback)
turns.app.command()(turn_reactions.feedback_list)
turns.app.command()(turn_reactions.signals)
turns.app.command()(turn_buckets.buckets)
turns.app.command()(turn_buckets.bucket)
turns.app.command()(turn_buckets.reconcile)
app.add_typer(turns.app, name="turn")
app.command(name="usage")(usage.show)
app.add_typer(history.app, name="history")
app.add_typer(users.app, name="user")
app.add_typer(erasing.app, name="erase")
app.command()(exports.export)
app.command(name="import")(exports.import_)
app.add_typer(processes.index_app, name="index")
app.add_typer(admin.app, name="admin")
app.command()(doctor.doctor)
app.command()(health.health)
app.command()(backups.backup)
app.command()(backups.restore)


@app.command()
def version(as_json: AsJson = False) -> None:
    """Say which Runekeep this is."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        found = installed("runekeep")
    except PackageNotFoundError:
        found = "not installed; run from its sources"
    if as_json:
        Output(True).json({"runekeep": found})
    else:
        Output(False).say(f"runekeep {found}")
