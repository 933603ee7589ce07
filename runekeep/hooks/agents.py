"""The agents whose hooks are known: where their settings are, which events they have, how a hook answers."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runekeep.client.sessions.messages import Message
from runekeep.hooks.events import HookEvent, Moment
from runekeep.transcripts.claude_code import read_claude_code
from runekeep.transcripts.codex import read_codex

_TIMEOUT_SECONDS = 5
"""How long the agent itself waits for a hook, should its process not even start."""

ReadTranscript = Callable[[Iterable[str]], list[Message]]


@dataclass(frozen=True, slots=True)
class Agent:
    """`folder`: of its settings, in the home directory or in a project, unless `home_variable` names another. `events`:
    its names of the events that are hooked. `nested`: each event has groups of hooks, not hooks. `defaults`: what a new
    settings file must have. `read_transcript` None: what was said comes with the events. `note`: what is left to do.
    `project_file`: of the settings of a project, if another than `file`."""

    name: str
    folder: str
    home_variable: str
    file: str
    events: tuple[str, ...]
    nested: bool
    defaults: Mapping[str, Any]
    read_transcript: ReadTranscript | None
    note: str = ""
    project_file: str = ""

    def settings_file(self, project: Path | None) -> Path:
        if project is not None:
            return project / self.folder / (self.project_file or self.file)
        home = os.environ.get(self.home_variable) if self.home_variable else None
        return (Path(home) if home else Path.home() / self.folder) / self.file

    def hook_entry(self, command: str) -> dict[str, Any]:
        """The entry of one event in the settings."""
        if not self.nested:
            return {"command": command, "timeout": _TIMEOUT_SECONDS}
        return {"hooks": [{"type": "command", "command": command, "timeout": _TIMEOUT_SECONDS}]}

    def answer(self, event: HookEvent, context: str) -> str:
        """What the hook prints, so that the agent adds `context` to its prompt; nothing if it cannot."""
        if self.nested:
            added = {"hookEventName": event.name, "additionalContext": context}
            return json.dumps({"hookSpecificOutput": added}) if context else ""
        if event.moment is Moment.START and context:
            return json.dumps({"additional_context": context})
        return json.dumps({"continue": True}) if event.moment is Moment.PROMPT else "{}"

    def takes_context(self, event: HookEvent) -> bool:
        """Whether the agent adds what a hook of this event prints to its prompt."""
        return event.moment is Moment.START or (self.nested and event.moment is Moment.PROMPT)


AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude-code",
            folder=".claude",
            home_variable="CLAUDE_CONFIG_DIR",
            file="settings.json",
            events=("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"),
            nested=True,
            defaults={},
            read_transcript=read_claude_code,
            # Teams share settings.json; the command names an interpreter of this machine.
            project_file="settings.local.json",
        ),
        Agent(
            name="codex",
            folder=".codex",
            home_variable="CODEX_HOME",
            file="hooks.json",
            events=("SessionStart", "UserPromptSubmit", "Stop"),
            nested=True,
            defaults={},
            read_transcript=read_codex,
            note="Codex runs hooks only if its config.toml has `codex_hooks = true` below [features].",
        ),
        Agent(
            name="cursor",
            folder=".cursor",
            home_variable="",
            file="hooks.json",
            events=("sessionStart", "beforeSubmitPrompt", "afterAgentResponse", "sessionEnd"),
            nested=False,
            defaults={"version": 1},
            # Its transcripts have no documented form.
            read_transcript=None,
            note="Cursor takes memory at the start of a session only, not with each prompt.",
        ),
    )
}
