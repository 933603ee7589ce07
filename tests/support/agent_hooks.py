"""Coding agents in tests: inputs of their hooks in the form that each vendor documents, handed to real processes."""

import json
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runekeep.hooks.agents import AGENTS
from runekeep.hooks.running import Caller
from runekeep.hooks.state import HookState
from tests.acceptance.processes import environment
from tests.support.fork_server import run_module
from tests.support.waiting import until

TRANSCRIPTS = Path(__file__).parent / "agent_transcripts"
HOOK_SECONDS = 60.0


class CodingAgent:
    """An agent of one user, with a home directory of its own. Hooks are run as its settings file says."""

    def __init__(self, name: str, home: Path, address: str) -> None:
        self.name, self.home, self.address = name, home, address
        owner = Caller(address, user="anna").fingerprint
        self.state = HookState(home / "state" / "runekeep" / "hooks", owner)
        self.project = home / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        # Must not be imported: the project may be anybody's.
        (self.project / "typer.py").write_text("open('imported', 'w').close()\n")
        self._variables = {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "RUNEKEEP_ADDRESS": address,
            "RUNEKEEP_USER": "anna",
        }

    @property
    def events(self) -> tuple[str, ...]:
        return AGENTS[self.name].events

    @property
    def settings_file(self) -> Path:
        names = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "cursor": ".cursor/hooks.json"}
        return self.home / names[self.name]

    def install(self, *options: str) -> subprocess.CompletedProcess[str]:
        return run_module(
            "runekeep", "install", self.name, *options, environment=environment(self._variables), timeout=HOOK_SECONDS
        )

    def command(self, event: str, *options: str) -> str:
        """The command of an event, from the settings file; `options` are added."""
        (entry,) = json.loads(self.settings_file.read_text())["hooks"][event]
        command = entry["hooks"][0]["command"] if "hooks" in entry else entry["command"]
        return shlex.join([*shlex.split(command), *options])

    def fire(self, event: str, *options: str, **fields: Any) -> Any:
        """Runs the hook of an event in the project, which must end with 0. The output, parsed; None for nothing."""
        ended = subprocess.run(
            self.command(event, *options),
            shell=True,
            cwd=self.project,
            input=json.dumps({"hook_event_name": event, **fields}),
            env=environment(self._variables),
            capture_output=True,
            text=True,
            timeout=HOOK_SECONDS,
            check=False,
        )
        assert not (self.project / "imported").exists()
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
        return json.loads(ended.stdout) if ended.stdout else None

    def context(self, event: str, **fields: Any) -> str:
        """What the hook of an event adds to the prompt."""
        said = self.fire(event, **fields)
        if said is None:
            return ""
        assert said["hookSpecificOutput"]["hookEventName"] == event
        return str(said["hookSpecificOutput"]["additionalContext"])

    def settled(self) -> None:
        """Waits until everything is handed in."""
        until(lambda: not self.state.spooled())
        until(self._is_idle)

    def _is_idle(self) -> bool:
        with self.state.try_lock() as locked:
            return locked

    def log(self) -> str:
        return self.state.log_file.read_text() if self.state.log_file.exists() else ""


@contextmanager
def deaf_server() -> Iterator[str]:
    """The address of a port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
