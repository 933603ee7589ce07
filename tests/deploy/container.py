"""Runs what is in an image without a container engine: namespaces, a root that is read only, a user without rights.

What an engine does and this does not: a network of its own, limits of memory and processors, a seccomp profile.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
END_SECONDS = 40.0

# The root, pairs of a directory of this machine and of where it is seen, `--`, the user, variables and the command.
_ENTER = """
set -eu
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o nosuid,nodev,mode=1777,size=256m tmpfs "$root/tmp"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    shift 2
done
shift
user=$1
shift
# Where an ordinary PATH does not look.
exec /usr/sbin/chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --no-new-privs \\
    --inh-caps=-all --bounding-set=-all env -i "$@"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """What was built: where its files are, and what its configuration says."""

    root: Path
    user: str
    environment: tuple[str, ...]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]


@dataclass
class Container:
    """One process of an image, the first of its namespace. `volumes`: directories, by where it sees them."""

    image: Image
    log: Path
    volumes: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str) -> "Container":
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                self._command(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self

    def run(self, *arguments: str, entrypoint: Sequence[str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command in a namespace of its own, to its end."""
        return subprocess.run(
            self._command(arguments, entrypoint),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    def first_line(self) -> dict[str, Any]:
        """What it says on stdout once it serves."""
        stdout = self._running().stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            line = stdout.readline() if selector.select(START_SECONDS) else ""
        assert line, f"nothing was said:\n{self.log.read_text()[-4000:]}"
        said: dict[str, Any] = json.loads(line)
        return said

    @property
    def pid(self) -> int:
        """Of the process itself, as this machine sees it."""
        parent = self._running().pid
        (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(child)

    def status(self) -> dict[str, str]:
        """What the kernel says of the process."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def wait_for(self, text: str) -> None:
        """Until it stands in the log."""
        deadline = time.monotonic() + START_SECONDS
        while text not in self.log.read_text():
            assert self._running().poll() is None and time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.05)

    def stop(self) -> int:
        """SIGTERM, as an engine sends it; the exit status."""
        os.kill(self.pid, signal.SIGTERM)
        try:
            return self._running().wait(END_SECONDS)
        finally:
            self.discard()

    def discard(self) -> None:
        """For the end of a test that failed half way, and of one that did not."""
        if self._process is None:
            return
        # Not the parent, whose end this one would not notice: it forgot about it when it gave its rights away.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()
        self._process = None

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it does not run"
        return self._process

    def _command(self, arguments: Sequence[str], entrypoint: Sequence[str] | None = None) -> list[str]:
        mounts = [part for inside, outside in self.volumes.items() for part in (str(outside), inside)]
        for inside in self.volumes:
            (self.image.root / inside.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return [
            *("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork"),
            *("sh", "-c", _ENTER, "sh", str(self.image.root), *mounts, "--", self.image.user),
            *(*self.image.environment, *(f"{name}={value}" for name, value in self.variables.items())),
            *(self.image.entrypoint if entrypoint is None else entrypoint),
            *(arguments or self.image.command),
        ]
