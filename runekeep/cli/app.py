"""The tree of commands."""

import typer

from runekeep.cli import admin, embedder_change, history
from runekeep.cli.common.options import AsJson
from runekeep.cli.common.output import Output
from runekeep.cli.doctor import doctor, health
from runekeep.cli.memories import diff, documents, memories, recall, search, writes
from runekeep.cli.processes import backup, commands, studio
from runekeep.cli.sessions import context, ingest, sessions
from runekeep.cli.spaces import erasure, transfer, users
from runekeep.cli.tasks import tasks, usage
from runekeep.cli.turns import buckets, reactions, selections, turns

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
app.command()(commands.up)
app.command(context_settings=commands.PASS_ON)(commands.serve)
app.command(context_settings=commands.PASS_ON)(commands.extractor)
app.command()(studio.studio)
app.command()(ingest.ingest)
app.command()(recall.recall)
sessions.app.command()(context.context)
app.add_typer(sessions.app, name="session")
app.add_typer(tasks.app, name="task")
memories.app.command()(search.find)
memories.app.command()(diff.diff)
memories.app.command()(documents.glob)
memories.app.command()(documents.grep)
memories.app.command()(writes.write)
memories.app.command()(writes.edit)
memories.app.command()(writes.delete)
app.add_typer(memories.app, name="memory")
turns.app.command()(selections.select)
turns.app.command()(reactions.feedback)
turns.app.command()(reactions.feedback_list)
turns.app.command()(reactions.signals)
turns.app.command()(buckets.buckets)
turns.app.command()(buckets.bucket)
turns.app.command()(buckets.reconcile)
app.add_typer(turns.app, name="turn")
app.command(name="usage")(usage.show)
app.add_typer(history.app, name="history")
app.add_typer(users.app, name="user")
app.add_typer(erasure.app, name="erase")
app.command()(transfer.export)
app.command(name="import")(transfer.import_)
commands.index_app.command()(embedder_change.embed)
app.add_typer(commands.index_app, name="index")
app.add_typer(admin.app, name="admin")
app.command()(doctor.doctor)
app.command()(health.health)
app.command()(backup.backup)
app.command()(backup.restore)


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version of Runekeep."""
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
