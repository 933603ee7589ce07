"""Runs a hook: answers within the deadline whatever happens, and starts the process that hands in what was said."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runekeep import (
    AccessDeniedError,
    AsyncClient,
    DeadlineExceededError,
    ResourceExhaustedError,
    RunekeepError,
    UnavailableError,
)
from runekeep.hooks.agents import AGENTS, Agent
from runekeep.hooks.capture import capture
from runekeep.hooks.events import HookEvent, Moment, UnknownEventError, parse_event
from runekeep.hooks.recalling import Budgets, recall_for
from runekeep.hooks.state import HookState
from runekeep.injection.texts import name_error

RECALL_SECONDS = 0.8
EXIT_SECONDS = 1.5
"""After which the process ends without an answer, for example if its input never ends."""
CALL_SECONDS = 20.0
"""Of one call of the process that hands in."""

_LATER = (UnavailableError, DeadlineExceededError, ResourceExhaustedError, AccessDeniedError)
"""Errors whose cause is not the entry: the same call may succeed later."""
_IDENTITY = ("RUNEKEEP_ADDRESS", "RUNEKEEP_ACCOUNT", "RUNEKEEP_USER", "RUNEKEEP_API_KEY", "RUNEKEEP_CERT_FILE")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom hooks call for; None is the client's default. The key comes from the environment alone."""

    server: str | None = None
    account: str | None = None
    user: str | None = None

    def client(self, timeout: float) -> AsyncClient:
        return AsyncClient(self.server, account=self.account, user=self.user, timeout=timeout)

    @property
    def fingerprint(self) -> str:
        """A name for the server and the identity that calls have, options and environment together."""
        address, account, user, key, certificate = (os.environ.get(name, "") for name in _IDENTITY)
        identity = (self.server or address, self.account or account, self.user or user, key, certificate)
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

    @property
    def arguments(self) -> list[str]:
        """The options of a command that calls for the same."""
        named = (("--address", self.server), ("--account", self.account), ("--user", self.user))
        return [text for name, value in named if value for text in (name, value)]


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook of one agent."""

    agent: Agent
    caller: Caller
    budgets: Budgets
    state: HookState

    def run(self) -> str:
        """Reads the input of a hook from stdin, and returns what the hook answers. Raises nothing; the log says what
        went wrong."""
        # Not cancelled at the end: the end of the process may hang too.
        watchdog = threading.Timer(EXIT_SECONDS, self._give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            return self._answer(sys.stdin.buffer.read().decode(errors="replace"))
        except Exception as error:  # the agent must go on, whatever this is
            self.state.log(f"{self.agent.name}: failed: {_brief(error)}")
            return ""

    def _answer(self, data: str) -> str:
        event = parse_event(self.agent.name, data)
        if self._has_words(event):
            self.state.put(json.dumps({"agent": self.agent.name, "input": data}))
        if self._has_words(event) or (event.moment is Moment.START and self.state.spooled()):
            self._start_handing_in()
        context = asyncio.run(self._recall(event)) if self.agent.takes_context(event) else ""
        return self.agent.answer(event, context)

    def _has_words(self, event: HookEvent) -> bool:
        """Whether there may be something to hand in."""
        if event.moment is Moment.START:
            return False
        return self.agent.read_transcript is None or event.moment is not Moment.PROMPT

    async def _recall(self, event: HookEvent) -> str:
        try:
            async with asyncio.timeout(RECALL_SECONDS), self.caller.client(RECALL_SECONDS) as client:
                return await recall_for(client, event, self.budgets)
        except (RunekeepError, TimeoutError, ValueError) as error:
            self.state.log(f"{self.agent.name} {event.name}: no memory: {_brief(error)}")
            return ""

    def _start_handing_in(self) -> None:
        """In a process of its own, which goes on when the agent has ended."""
        subprocess.Popen(
            [sys.executable, "-P", "-m", "runekeep", "hook", "--hand-in", *self.caller.arguments],
            # Not in the project: its files must not be imported, and its folder not be kept busy.
            cwd=self.state.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _give_up(self) -> None:
        self.state.log(f"{self.agent.name}: gave up after {EXIT_SECONDS} s")
        os._exit(0)


def hand_in(caller: Caller, state: HookState) -> bool:
    """Hands in the entries of the spool, oldest first, until it is empty. An entry that fails stays for the next time.
    Returns False if one did; True also if another process is at work, which then hands in all of them."""
    # Looked at again without the lock: a process that found it taken has ended, and left its entry to this one.
    while state.spooled():
        with state.try_lock() as locked:
            if not locked:
                return True
            try:
                if not asyncio.run(_hand_in(caller, state)):
                    return False
            except ValueError as error:
                # An address or a key that cannot be used.
                state.log(f"hand-in: {_brief(error)}")
                return False
    return True


async def _hand_in(caller: Caller, state: HookState) -> bool:
    async with caller.client(CALL_SECONDS) as client:
        while paths := state.spooled():
            for path in paths:
                try:
                    agent, event = _read_entry(path)
                    captured = await capture(client, agent, event)
                    state.log(
                        f"{agent.name} {event.name}: {captured.count} messages of {event.session_id} handed in"
                        + "".join(f"; skipped one: {_brief(error)}" for error in captured.refused)
                    )
                except _LATER as error:
                    # The rest would fail too, and must come after it.
                    state.log(f"hand-in: stopped: {_brief(error)}")
                    return False
                except Exception as error:  # one bad entry must not hold up those behind it
                    state.log(f"hand-in: dropped an entry: {_brief(error)}")
                path.unlink(missing_ok=True)
    return True


def _read_entry(path: Path) -> tuple[Agent, HookEvent]:
    entry: dict[str, Any] = json.loads(path.read_text())
    agent = AGENTS[entry["agent"]]
    return agent, parse_event(agent.name, entry["input"])


def _brief(error: BaseException) -> str:
    """Names an error for the log. The text of an UnknownEventError quotes nothing."""
    return str(error) if isinstance(error, UnknownEventError) else name_error(error)
