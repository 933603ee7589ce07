"""`runekeep doctor`: checks the installation, store, index, model and server."""

import asyncio
import json
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.common.errors import FAILED
from runekeep.cli.common.options import Address, AsJson
from runekeep.cli.common.output import Output
from runekeep.cli.processes.commands import DataDir, option
from runekeep.cli.processes.environments import extractor_environment, server_environment
from runekeep.cli.processes.extras import missing_packages
from runekeep.cli.processes.supervisor import module_command

if TYPE_CHECKING:
    from rich.text import Text

MAX_CHECK_SECONDS = 300.0
"""Time for all checks that need no server; each of them has a shorter limit."""
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "skipped": "dim"}
_ANYWHERE = ("0.0.0.0", "[::]")

Check = dict[str, str]


def doctor(
    data_dir: DataDir = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="YAML file with the server's settings.")
    ] = None,
    address: Address = None,
    server_name: Annotated[
        str,
        typer.Option("--server-name", metavar="NAME", help="Name on the server's certificate, if it is not the host."),
    ] = "",
    model_call: Annotated[
        bool, typer.Option("--model-call", help="Also ask the model for a word, which costs a little.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check everything that a server and its extractors need, and print what is wrong and what to do.

    Needs no running server and changes nothing. The exit status is 1 if there is a problem.
    """
    local_options = [*option("--data-dir", data_dir), *option("--config", config)]
    local = _start("server", "runekeep_server.doctor", local_options, server_environment())
    model_options = ["--model-call"] if model_call else []
    model = _start("extractor", "runekeep_extractor.doctor", model_options, extractor_environment())
    local_report, model_report = _read("server", "settings.load", local), _read("extractor", "model.settings", model)
    from runekeep.cli.doctor.server_checks import check_server

    local_address = _address(str(local_report.get("address", "")), local_report["checks"])
    where = address or local_address
    server_checks = asyncio.run(check_server(where, server_name, expected=bool(address or local_report.get("running"))))
    if where == local_address:
        local_report["checks"] = _accept_ports(local_report["checks"], server_checks)
    checks: list[Check] = [*local_report["checks"], *model_report["checks"], *server_checks]
    problems = sum(check["state"] == "problem" for check in checks)
    output = Output(as_json)
    if as_json:
        output.json({"problems": problems, "checks": checks})
    else:
        output.rows(("", "Check", "Found"), map(_row, checks), "Nothing was checked.", whole="Check")
        output.say(_summarize(checks))
    if problems:
        raise typer.Exit(FAILED)


def _start(
    extra: str, module: str, arguments: Sequence[str], environment: dict[str, str]
) -> "subprocess.Popen[str] | None":
    """Starts a process that checks one part; None if the extra of that part is not installed here."""
    if missing_packages(extra):
        return None
    return subprocess.Popen(
        module_command(module, arguments),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _read(extra: str, name: str, process: "subprocess.Popen[str] | None") -> dict[str, Any]:
    """Returns the report of a process; if it has none, a failed check with this name."""
    if process is None:
        why = f"the extra `{extra}` is not installed: there is no {extra} to check here"
        return {"checks": [{"check": f"packages.{extra}", "state": "skipped", "found": why, "do": ""}]}
    try:
        said, complaints = process.communicate(timeout=MAX_CHECK_SECONDS)
        found: dict[str, Any] = json.loads(said)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"checks": [_failed(name, f"no answer within {MAX_CHECK_SECONDS:g} s")]}
    except ValueError:
        last = complaints.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        return {"checks": [_failed(name, last[0])]}
    return found


def _failed(name: str, found: str) -> Check:
    return {"check": name, "state": "problem", "found": found, "do": "Is Runekeep installed whole? Install it anew."}


def _accept_ports(checks: Sequence[Check], server_checks: Sequence[Check]) -> list[Check]:
    """Returns the checks of this machine. If a server answers at the address of the settings, it is no problem that the
    ports are in use: that server works on a data directory that was given to it alone."""
    if not any(check["check"] == "server.health" and check["state"] == "ok" for check in server_checks):
        return list(checks)
    found = "in use by the server that answers; it works on another data directory: name it with --data-dir"
    return [
        {**check, "state": "ok", "found": found, "do": ""}
        if check["check"].startswith("ports.") and check["state"] == "problem"
        else check
        for check in checks
    ]


def _address(listening: str, checks: Sequence[Check]) -> str | None:
    """Returns the address that clients call with these settings; None: the environment names it."""
    if not listening or os.environ.get("RUNEKEEP_ADDRESS", "").startswith("https://"):
        return None
    host, _, port = listening.rpartition(":")
    if port == "0":
        return None
    called = f"127.0.0.1:{port}" if host in _ANYWHERE else listening
    tls = any(check["check"] == "tls.certificate" and check["state"] != "skipped" for check in checks)
    return f"https://{called}" if tls else called


def _row(check: Check) -> tuple["Text", str, "Text"]:
    from rich.text import Text

    found = Text(check["found"], style="dim" if check["state"] == "skipped" else "")
    if check["do"]:
        found.append(f"\n{check['do']}", style="bold")
    return Text(check["state"], style=_STYLES[check["state"]]), check["check"], found


def _summarize(checks: Sequence[Check]) -> str:
    states = Counter(check["state"] for check in checks)
    said = [
        f"{states[state]} {one if states[state] == 1 else many}"
        for state, one, many in (
            ("problem", "problem", "problems"),
            ("warning", "warning", "warnings"),
            ("skipped", "check was skipped", "checks were skipped"),
        )
        if states[state]
    ]
    return f"{', '.join(said) or 'All is well'}."
