"""Commands that start processes: the server, extractors, both together, and the rebuild of the index."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from runekeep.cli.options import AsJson
from runekeep.cli.output import FAILED, Output, fail

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Every argument, --help too, goes to the process."""

index_app = typer.Typer(no_args_is_help=True, help="The search index, which is derived from the store.")

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where everything is kept (RUNEKEEP_DATA_DIR, else runekeep-data)."),
]


def up(
    data_dir: DataDir = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one."),
    ] = None,
    extractors: Annotated[int, typer.Option("--extractors", "-n", min=0, max=64, help="Extractor processes.")] = 2,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Jobs side by side in each extractor.")
    ] = None,
    extractor_server: Annotated[
        str | None,
        typer.Option(
            "--extractor-server",
            metavar="HOST:PORT",
            help="Where its extractors call it, as https://NAME:PORT for a certificate's name; else where it listens.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a server and extractors, and keep them running until Ctrl-C.

    One that dies starts again after a pause, which doubles from 0.5 to 30 s. A server that says that it cannot start
    (status 2) ends the command, and so does one whose first start fails.

    Further settings come from the environment. In the mode keys its extractors get the key RUNEKEEP_WORKER_KEY, unless
    there is a RUNEKEEP_EXTRACTOR_API_KEY. With --json, one line on stdout says where it serves and with which
    process ids.
    """
    import asyncio

    from runekeep.cli.supervise import ChildFailed, Serving, Supervisor, module_command

    output = Output(as_json)
    server = [*flag("--data-dir", data_dir), *flag("--address", address)]

    def serving(what: Serving) -> None:
        if as_json:
            output.json({**what.said, "pids": {"supervisor": os.getpid(), **what.pids}})
            return
        from rich.text import Text

        output.console.print(Text.assemble("Serving on ", (what.address, "bold green"), f", {extractors} extractors."))
        output.console.print(Text("Ctrl-C ends it. Try `runekeep ingest FILE` in another terminal.", style="dim"))

    def report(event: str, details: dict[str, Any]) -> None:
        from runekeep.cli.output import complain

        if event == "serving":
            complain(f"{details['name']} serves again on {details['address']}, process id {details['pid']}")
        else:
            complain(f"{details['name']} ended ({details['status']}); starting it again in {details['pause']:g} s")

    supervisor = Supervisor(
        server=module_command("server", server),
        extractor=module_command("extractor", flag("--concurrency", concurrency)),
        extractors=extractors,
        extractor_server=extractor_server,
        on_serving=serving,
        report=report,
    )
    try:
        asyncio.run(supervisor.run())
    except ChildFailed as error:
        fail(str(error), "What it said itself stands above.", status=error.status or FAILED)


def serve(context: typer.Context) -> None:
    """Run the server alone; its arguments go to it, for example --help, --data-dir or --address."""
    become("server", context.args)


def extractor(context: typer.Context) -> None:
    """Run one extractor; its arguments go to it, for example --help, --server or --concurrency."""
    become("extractor", context.args)


@index_app.command()
def rebuild(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Make the index anew from the store. The server must not be running on the same directory."""
    become("server.rebuild", [*flag("--data-dir", data_dir), *(["--json"] if as_json else [])])


def become(module: str, arguments: list[str]) -> None:
    """This process goes on as another module's; it does not return."""
    from runekeep.cli.environments import child_environment
    from runekeep.cli.supervise import module_command

    command = module_command(module, arguments)
    os.execve(command[0], command, child_environment())


def flag(name: str, value: object) -> list[str]:
    """An option for a child process; nothing when there is no value."""
    return [] if value is None else [name, str(value)]
