"""`runekeep doctor`: what is wrong with this installation, its store, its index, its model and its server."""

import asyncio
import json
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.environments import extractor_environment, server_environment
from runekeep.cli.options import Address, AsJson
from runekeep.cli.output import FAILED, Output
from runekeep.cli.processes import DataDir, flag
from runekeep.cli.supervise import module_command

if TYPE_CHECKING:
    from rich.text import Text

SECONDS = 300.0
"""For all that is looked at without a server; each part has a shorter limit of its own."""
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "skipped": "dim"}
_ANYWHERE = ("0.0.0.0", "[::]")

Said = dict[str, str]


def doctor(
    data_dir: DataDir = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="YAML file with the server's settings.")
    ] = None,
    address: Address = None,
    server_name: Annotated[
        str,
        typer.Option("--server-name", metavar="NAME", help="A name on the server's certificate, in place of its host."),
    ] = "",
    model_call: Annotated[
        bool, typer.Option("--model-call", help="Ask the model for one token too, which costs a little.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at everything that a server and its extractors need, and say what is wrong and what to do.

    Changes nothing, with a server or without one. Ends with status 1 when there is a problem.
    """
    local = _start("server.doctor", [*flag("--data-dir", data_dir), *flag("--config", config)], server_environment())
    model = _start("extractor.doctor", ["--model-call"] if model_call else [], extractor_environment())
    seen, of_model = _read("settings.load", local), _read("model.settings", model)
    from runekeep.cli.doctor_server import ask

    where = address or _address(str(seen.get("address", "")), seen["checks"])
    of_server = asyncio.run(ask(where, server_name, expected=bool(address or seen.get("running"))))
    checks: list[Said] = [*seen["checks"], *of_model["checks"], *of_server]
    problems = sum(check["state"] == "problem" for check in checks)
    output = Output(as_json)
    if as_json:
        output.json({"problems": problems, "checks": checks})
    else:
        output.rows(("", "Check", "Found"), map(_row, checks), "Nothing was looked at.", whole="Check")
        output.say(_sum(checks))
    if problems:
        raise typer.Exit(FAILED)


def _start(module: str, arguments: Sequence[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        module_command(module, arguments),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _read(name: str, process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What the process said; a check of that name is the problem when it said nothing."""
    try:
        said, complaints = process.communicate(timeout=SECONDS)
        found: dict[str, Any] = json.loads(said)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"checks": [_failed(name, f"no answer within {SECONDS:g} s")]}
    except ValueError:
        last = complaints.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        return {"checks": [_failed(name, last[0])]}
    return found


def _failed(name: str, found: str) -> Said:
    return {"check": name, "state": "problem", "found": found, "do": "Is Runekeep installed whole? Install it anew."}


def _address(listening: str, checks: Sequence[Said]) -> str | None:
    """Where the server of these settings is called; None: where the environment says."""
    if not listening or os.environ.get("RUNEKEEP_ADDRESS", "").startswith("https://"):
        return None
    host, _, port = listening.rpartition(":")
    if port == "0":
        return None
    called = f"127.0.0.1:{port}" if host in _ANYWHERE else listening
    tls = any(check["check"] == "tls.certificate" and check["state"] != "skipped" for check in checks)
    return f"https://{called}" if tls else called


def _row(check: Said) -> tuple["Text", str, "Text"]:
    from rich.text import Text

    found = Text(check["found"], style="dim" if check["state"] == "skipped" else "")
    if check["do"]:
        found.append(f"\n{check['do']}", style="bold")
    return Text(check["state"], style=_STYLES[check["state"]]), check["check"], found


def _sum(checks: Sequence[Said]) -> str:
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
