"""Runs the processes of another release from its sources, beside those of this one."""

import os
from pathlib import Path

_FOLDERS = ("server", "storage", "schemas", "extractor")


def module_of(process: str, source: Path) -> str:
    """Returns the module of "server" or "extractor" in a source tree. Releases before 2026-11-27 have no prefix."""
    name = f"runekeep_{process}"
    return name if (source / process / name).is_dir() else process


def import_path(source: Path) -> dict[str, str]:
    """Returns the variable that makes a process import that tree instead of this checkout, which is installed."""
    folders = [source, *(source / name for name in _FOLDERS if any((source / name).glob("runekeep_*")))]
    return {"PYTHONPATH": os.pathsep.join(map(str, folders))}
