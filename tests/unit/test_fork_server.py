"""A process that is forked does what one does that is started anew."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fork_server import ROOT, launch, run_module


@pytest.mark.parametrize(
    ("program", "arguments", "variables", "code"),
    [
        ("runekeep_server", (), {"RUNEKEEP_DRAIN_SECONDS": "for ever"}, 2),
        ("runekeep_server.backup", ("make", "backup", "--data-dir", "none"), {}, 2),
        ("runekeep_extractor", ("--concurrency", "0"), {}, 2),
        ("runekeep", ("task", "list", "--help"), {"COLUMNS": "60"}, 0),
    ],
)
def test_it_says_and_ends_the_same(
    program: str, arguments: tuple[str, ...], variables: dict[str, str], code: int, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", program, *arguments]
    anew = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    with pytest.MonkeyPatch.context() as patch:
        # What differs in a variable that Python reads is not forked.
        patch.setenv("PYTHONPATH", str(ROOT))
        forked = run_module(program, *arguments, environment=environment, cwd=tmp_path)

    assert (anew.returncode, bool(anew.stdout + anew.stderr)) == (code, True)
    assert (forked.returncode, forked.stdout, forked.stderr) == (code, anew.stdout, anew.stderr)


def test_the_signal_that_ended_it_is_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        process = launch(
            "runekeep_extractor", ["--server", "127.0.0.1:1"], environment=os.environ, stdout=log, stderr=log
        )
    assert process.poll() is None

    process.send_signal(signal.SIGKILL)

    assert process.wait(60) == process.returncode == process.poll() == -signal.SIGKILL
    process.kill()
