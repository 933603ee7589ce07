"""Commands that start processes: the server, extractors, all together, and the rebuild of the index."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from runekeep.cli.common.errors import FAILED, fail
from runekeep.cli.common.options import AsJson
from runekeep.cli.common.output import Output
from runekeep.cli.processes.extras import missing_packages, require_extras

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Passes every argument to the process, --help too."""

index_app = typer.Typer(no_args_is_help=True, help="The search index.")

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Data directory (RUNEKEEP_DATA_DIR, else runekeep-data)."),
]


def up(
    data_dir: DataDir = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Address to listen on; port 0 chooses a free port."),
    ] = None,
    extractors: Annotated[
        int, typer.Option("--extractors", "-n", min=0, max=64, help="Number of extractor processes.")
    ] = 2,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Concurrent jobs in each extractor.")
    ] = None,
    extractor_server: Annotated[
        str | None,
        typer.Option(
            "--extractor-server",
            metavar="HOST:PORT",
            help="Address that extractors call, such as https://NAME:PORT; default: where the server listens.",
        ),
    ] = None,
    studio: Annotated[
        str | None,
        typer.Option(
            "--studio",
            metavar="HOST:PORT",
            help="Address of the studio; default: 127.0.0.1:7480 if its extra is installed, and none with --json.",
        ),
    ] = None,
    no_studio: Annotated[bool, typer.Option("--no-studio", help="Start no studio.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a server, extractors and the studio, and keep them running until Ctrl-C.

    A process that ends is restarted after a pause, which doubles from 0.5 to 30 s. The command ends if the server
    reports that it cannot start (status 2), or if its first start fails.

    Further settings come from the environment. In the identity mode keys, extractors get the key RUNEKEEP_WORKER_KEY,
    unless RUNEKEEP_EXTRACTOR_API_KEY is set. With --json, one line on stdout has the address and the process ids.
    """
    require_extras("runekeep up", "server", *(["extractor"] if extractors else []))
    import asyncio

    from runekeep.cli.processes.supervisor import ChildFailed, Serving, Supervisor, module_command

    output = Output(as_json)
    server = [*option("--data-dir", data_dir), *option("--address", address)]

    def serving(what: Serving) -> None:
        if as_json:
            output.json({**what.announcement, "pids": {"supervisor": os.getpid(), **what.pids}})
            return
        from rich.text import Text

        output.console.print(Text.assemble("Serving on ", (what.address, "bold green"), f", {extractors} extractors."))
        output.console.print(Text("Ctrl-C ends it. Try `runekeep ingest FILE` in another terminal.", style="dim"))

    def report(event: str, details: dict[str, Any]) -> None:
        from runekeep.cli.common.errors import print_error

        if event == "serving":
            print_error(f"{details['name']} serves again on {details['address']}, process id {details['pid']}")
        elif event == "given up":
            print_error(f"{details['name']} cannot start; the server goes on without it")
        else:
            print_error(f"{details['name']} ended ({details['status']}); starting it again in {details['pause']:g} s")

    supervisor = Supervisor(
        server=module_command("runekeep_server", server),
        extractor=module_command("runekeep_extractor", option("--concurrency", concurrency)),
        extractors=extractors,
        extractor_server=extractor_server,
        studio=[] if no_studio else _studio_command(studio, as_json),
        on_serving=serving,
        report=report,
    )
    try:
        asyncio.run(supervisor.run())
    except ChildFailed as error:
        fail(str(error), "Its own message is above.", status=error.status or FAILED)


def _studio_command(listen: str | None, as_json: bool) -> list[str]:
    """Returns the command of the studio; empty if it was not asked for and its extra is not installed."""
    from runekeep.cli.processes.studio import DEFAULT_LISTEN
    from runekeep.cli.processes.supervisor import module_command
    from runekeep.web.listening import ListenError, split_listen

    if listen is None and (as_json or missing_packages("studio")):
        return []
    require_extras("runekeep up --studio", "studio")
    try:
        split_listen(listen or DEFAULT_LISTEN)
    except ListenError as error:
        fail(str(error), status=2)
    return module_command("runekeep", ["studio", "--listen", listen or DEFAULT_LISTEN])


def serve(context: typer.Context) -> None:
    """Run only the server. All arguments go to it, for example --help, --data-dir or --address."""
    require_extras("runekeep serve", "server")
    exec_module("runekeep_server", context.args)


def extractor(context: typer.Context) -> None:
    """Run one extractor. All arguments go to it, for example --help, --server or --concurrency."""
    require_extras("runekeep extractor", "extractor")
    exec_module("runekeep_extractor", context.args)


@index_app.command()
def rebuild(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Rebuild the index from the store. No server may run on the same directory."""
    require_extras("runekeep index rebuild", "server")
    exec_module("runekeep_server.rebuild", [*option("--data-dir", data_dir), *flag("--json", as_json)])


def exec_module(module: str, arguments: list[str]) -> None:
    """Replaces this process by one that runs a module; does not return."""
    from runekeep.cli.processes.supervisor import module_command

    command = module_command(module, arguments)
    os.execv(command[0], command)


def option(name: str, value: object) -> list[str]:
    """Returns an option for another process; no arguments if the value is None."""
    return [] if value is None else [name, str(value)]


def flag(name: str, is_set: bool) -> list[str]:
    """Returns a flag for another process; no arguments if it is not set."""
    return [name] if is_set else []
