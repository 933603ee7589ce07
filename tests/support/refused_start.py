"""Starts of a server that should fail, also as a process with limited write access."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.fork_server import run_module

ROOT = Path(__file__).parents[2]
END_SECONDS = 90.0


def refused_start(
    data_dir: Path, settings: dict[str, str] | None = None, *, wrapped_by: Sequence[str] = (), status: int = 2
) -> str:
    """Returns the standard error of a server that ends with `status` instead of serving. `wrapped_by`: a command that
    runs the server's command."""
    arguments = ["--address", "127.0.0.1:0", "--data-dir", str(data_dir)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RUNEKEEP_")}
    environment = {**inherited, "RUNEKEEP_EMBEDDER": "none", **(settings or {})}
    if wrapped_by:
        ended = subprocess.run(
            [*wrapped_by, sys.executable, "-m", "runekeep_server", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=END_SECONDS,
            check=False,
        )
    else:
        ended = run_module("runekeep_server", *arguments, environment=environment, timeout=END_SECONDS)
    assert ended.returncode == status, f"status {ended.returncode}: {ended.stdout}{ended.stderr}"
    assert not ended.stdout and "Traceback" not in ended.stderr, ended.stdout + ended.stderr
    (said,) = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert said.startswith("The server cannot start: "), ended.stderr
    return said


def bound_by_permissions() -> list[str]:
    """Returns a command that runs another one under the modes of files, which do not bind root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]


def mounted_read_only(folder: Path) -> list[str]:
    """Returns a command that runs another one with the folder mounted read-only; no other process sees the mount."""
    script = f'mount --bind "{folder}" "{folder}" && mount -o remount,ro,bind "{folder}" && exec "$@"'
    return [*_own_mounts(), "sh", "-c", script, "sh"]


@cache
def may_mount() -> bool:
    """Whether this machine lets this user have private mounts."""
    if shutil.which("unshare") is None:
        return False
    ran = subprocess.run([*_own_mounts(), "mount", "--bind", "/tmp", "/tmp"], capture_output=True, check=False)
    return ran.returncode == 0


def _own_mounts() -> list[str]:
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
