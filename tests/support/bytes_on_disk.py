"""Words looked for in all files of a folder, however they may be written there."""

import json
from pathlib import Path

# What a process keeps of itself: no content, and it may change while it is read.
_LOCKS = {"lock"}


def files_with(folder: Path, word: str) -> dict[str, int]:
    """How often the word is in which file: in UTF-8, in UTF-16, or in JSON that spells it in ASCII."""
    forms = {word.encode(), word.encode("utf-16-le"), json.dumps(word)[1:-1].encode()}
    found = {}
    for path in folder.rglob("*"):
        if not path.is_file() or path.name in _LOCKS:
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        if count := sum(data.count(form) for form in forms):
            found[str(path.relative_to(folder))] = count
    return found
