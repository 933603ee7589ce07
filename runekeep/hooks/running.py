"""Runs a hook: answers within the deadline whatever happens, and starts the process that hands in what was said."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
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

RECALL_SECONDS = 0.8
EXIT_SECONDS = 1.5
"""After which the process ends without an answer, for example if its input never ends."""
CALL_SECONDS = 20.0
"""Of one call of the process that hands in."""

_LATER = (UnavailableError, DeadlineExceededError, ResourceExhaustedError, AccessDeniedError)
"""Errors that say nothing against what is handed in: it may succeed later, or with another key."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom hooks call for; None is the client's default. The key comes from the environment alone."""

    server: str | None = None
    account: str | None = None
    user: str | None = None

    def client(self, timeout: float) -> AsyncClient:
        return AsyncClient(self.server, account=self.account, user=self.user, timeout=timeout)

    @property
    def arguments(self) -> list[str]:
        """The options of a command that calls for the same."""
        named = (("--address", self.server), ("--account", self.account), ("--user", self.user))
        return [text for name, value in named if value for text in (name, value)]


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook of one agent."""

    agent: Agent
    caller: Caller = field(default_factory=Caller)
    budgets: Budgets = field(default_factory=Budgets)
    state: HookState = field(default_factory=HookState)

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
            [sys.executable, "-m", "runekeep", "hook", "--hand-in", *self.caller.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _give_up(self) -> None:
        self.state.log(f"{self.agent.name}: gave up after {EXIT_SECONDS} s")
        os._exit(0)


def hand_in(caller: Caller, state: HookState) -> bool:
    """Hands in what is in the spool, oldest first. What fails stays for the next time. Returns whether all is done."""
    with state.only_one():
        try:
            return asyncio.run(_hand_in(caller, state))
        except ValueError as error:
            # An address or a key that cannot be used.
            state.log(f"hand-in: {_brief(error)}")
            return False


async def _hand_in(caller: Caller, state: HookState) -> bool:
    async with caller.client(CALL_SECONDS) as client:
        for path in state.spooled():
            try:
                agent, event = _read_entry(path)
                count = await capture(client, agent, event)
                state.log(f"{agent.name} {event.name}: {count} messages of {event.session_id} handed in")
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
    """Names an error without what somebody said: messages of the server may quote it."""
    if isinstance(error, RunekeepError):
        return f"{error.code} {error.reason}".strip()
    return str(error) if isinstance(error, UnknownEventError) else type(error).__name__
