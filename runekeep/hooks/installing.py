"""Writes hooks into an agent's settings file, and takes them out again. Other entries stay as they are."""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runekeep.hooks.agents import Agent

_HOOK = ("runekeep", "hook")


class SettingsFileError(ValueError):
    """The settings file cannot be changed. The message says what to do."""


def hook_command(agent: Agent, arguments: Sequence[str]) -> str:
    """Returns the shell command of a hook. It names this installation in full: agents may have another PATH."""
    # -P: the agent runs hooks in the project, whose files must not be imported in place of modules.
    return shlex.join([sys.executable, "-P", "-m", *_HOOK, agent.name, *arguments])


def install(agent: Agent, path: Path, command: str) -> bool:
    """Hooks all events of the agent, in place of hooks of ours that were there. Returns whether the file changed."""
    before = _read(path)
    after = _without_ours(agent, before)
    hooks = after.setdefault("hooks", {})
    for event in agent.events:
        entries = hooks.setdefault(event, [])
        if not isinstance(entries, list):
            raise SettingsFileError(
                f"`hooks.{event}` in {path} is not a list, so nothing was changed; correct it first"
            )
        entries.append(agent.hook_entry(command))
    for name, value in agent.defaults.items():
        after.setdefault(name, value)
    return _write(path, before, after)


def remove(agent: Agent, path: Path) -> bool:
    """Removes Runekeep's hooks, and deletes the file if only default settings remain. Returns whether the file
    changed."""
    before = _read(path)
    after = _without_ours(agent, before)
    # Keep a symbolic link: the user may manage its target elsewhere, for example in a dotfiles repository.
    if _has_ours(agent, before) and after in ({}, agent.defaults) and not path.is_symlink():
        path.unlink()
        return True
    return _write(path, before, after)


def _is_ours(agent: Agent, entry: Any) -> bool:
    command = entry.get("command") if isinstance(entry, dict) else None
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    expected = ["-m", *_HOOK, agent.name]
    return any(words[start : start + len(expected)] == expected for start in range(len(words)))


def _has_ours(agent: Agent, settings: dict[str, Any]) -> bool:
    hooks = settings.get("hooks")
    lists = [one for one in hooks.values() if isinstance(one, list)] if isinstance(hooks, dict) else []
    return any(_entry_without_ours(agent, entry) != entry for entries in lists for entry in entries)


def _without_ours(agent: Agent, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy without our hooks, and without the groups and lists that had nothing else."""
    copy: dict[str, Any] = json.loads(json.dumps(settings))
    if copy.get("hooks") is None:
        copy.pop("hooks", None)
        return copy
    hooks = copy["hooks"]
    if not isinstance(hooks, dict):
        raise SettingsFileError("`hooks` is not an object; correct the file first")
    for event, entries in list(hooks.items()):
        if entries is None:
            del hooks[event]
        if not isinstance(entries, list):
            continue
        kept = [left for entry in entries if (left := _entry_without_ours(agent, entry)) is not None]
        if kept != entries:
            hooks[event] = kept
            if not kept:
                del hooks[event]
    if not hooks and settings["hooks"]:
        del copy["hooks"]
    return copy


def _entry_without_ours(agent: Agent, entry: Any) -> Any:
    """Returns an entry, or group of entries, without ours; None if nothing is left of it."""
    if _is_ours(agent, entry):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("hooks"), list):
        return entry
    kept = [one for one in entry["hooks"] if not _is_ours(agent, one)]
    if len(kept) == len(entry["hooks"]):
        return entry
    return {**entry, "hooks": kept} if kept else None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise SettingsFileError(f"{path} is not UTF-8 text, so nothing was changed; correct it first") from error
    try:
        found = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise SettingsFileError(
            f"{path} is not JSON (line {error.lineno}: {error.msg}), so nothing was changed; correct it first"
        ) from error
    if not isinstance(found, dict):
        raise SettingsFileError(f"{path} holds no JSON object, so nothing was changed")
    return found


def _write(path: Path, before: dict[str, Any], after: dict[str, Any]) -> bool:
    if after == before:
        return False
    # Settings are often links into a folder under version control.
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_encode(after))
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True


def _encode(settings: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        # Half a surrogate pair can only be written as an escape.
        return (json.dumps(settings, indent=2) + "\n").encode()
