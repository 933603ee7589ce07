"""The tree of commands."""

from typing import Annotated

import typer

from runekeep.cli import admin, agents, asks, embedder_change, history, proposals
from runekeep.cli.common.options import AsJson
from runekeep.cli.common.output import Output
from runekeep.cli.common.suggestions import SuggestingGroup
from runekeep.cli.doctor import doctor, health
from runekeep.cli.memories import diff, documents, memories, recall, search, writes
from runekeep.cli.processes import backup, commands, http, mcp, proxy, studio
from runekeep.cli.sessions import context, ingest, sessions
from runekeep.cli.spaces import erasure, transfer, users
from runekeep.cli.tasks import tasks, usage
from runekeep.cli.turns import buckets, reactions, selections, turns


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("runekeep")
    except PackageNotFoundError:
        return "not installed; run from its sources"


def _show_version(is_asked: bool) -> None:
    if is_asked:
        Output(False).say(f"runekeep {_installed_version()}")
        raise typer.Exit


app = typer.Typer(
    name="runekeep",
    cls=SuggestingGroup,
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
app.command()(http.http)
app.command()(mcp.mcp)
app.command()(proxy.proxy)
app.command()(agents.install)
app.command(cls=agents.HookCommand)(agents.hook)
app.command()(ingest.ingest)
app.command()(recall.recall)
app.command()(asks.ask)
sessions.app.command()(context.context)
sessions.app.command("rollback")(history.rollback_session)
app.add_typer(sessions.app, name="session", cls=SuggestingGroup)
app.add_typer(tasks.app, name="task", cls=SuggestingGroup)
memories.app.command()(search.find)
memories.app.command()(diff.diff)
memories.app.command()(documents.glob)
memories.app.command()(documents.grep)
memories.app.command()(writes.write)
memories.app.command()(writes.edit)
memories.app.command()(writes.delete)
app.add_typer(memories.app, name="memory", cls=SuggestingGroup)
turns.app.command()(selections.select)
turns.app.command()(reactions.feedback)
turns.app.command()(reactions.feedback_list)
turns.app.command()(reactions.signals)
turns.app.command()(buckets.buckets)
turns.app.command()(buckets.bucket)
turns.app.command()(buckets.reconcile)
app.add_typer(turns.app, name="turn", cls=SuggestingGroup)
app.command(name="usage")(usage.show)
app.add_typer(history.app, name="history", cls=SuggestingGroup)
app.add_typer(proposals.app, name="proposal", cls=SuggestingGroup)
app.add_typer(users.app, name="user", cls=SuggestingGroup)
app.add_typer(erasure.app, name="erase", cls=SuggestingGroup)
app.command()(transfer.export)
app.command(name="import")(transfer.import_)
commands.index_app.command()(embedder_change.embed)
app.add_typer(commands.index_app, name="index", cls=SuggestingGroup)
app.add_typer(admin.app, name="admin", cls=SuggestingGroup)
app.command()(doctor.doctor)
app.command()(health.health)
app.command()(backup.backup)
app.command()(backup.restore)


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Durable, transactional session memory for fleets of AI agents."""


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version of Runekeep."""
    if as_json:
        Output(True).json({"runekeep": _installed_version()})
    else:
        Output(False).say(f"runekeep {_installed_version()}")
