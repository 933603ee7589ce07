"""Stores everything that a run has paid for, so that a run after a break continues it.

The file holds one JSON object a line and is only appended to. Its first line has the settings that decide what the
server's memories are: with others, a run needs another folder.
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import json_format

from runekeep.v1 import common_pb2

FILE = "state.jsonl"

Key: TypeAlias = tuple[str, ...]
Usage: TypeAlias = Sequence[common_pb2.TokenUsage]


class OtherSettings(ValueError):
    """The folder belongs to a run with other settings. The message names them."""


class State:
    """The records of one folder. A record has a key, the name of an item under it, a value, and what it cost."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Raises OtherSettings."""
        self._values: dict[tuple[Key, str], Any] = {}
        self._usage: defaultdict[Key, list[common_pb2.TokenUsage]] = defaultdict(list)
        # Conversations and answers are in it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / FILE
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        # A run that was killed may have written half a line.
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(path, len(whole.encode()))
        lines = [json.loads(line) for line in whole.splitlines()]
        before = lines[0]["settings"] if lines else settings
        different = [
            f"{name} was {before.get(name)!r} and is {settings.get(name)!r}"
            for name in sorted({*before, *settings})
            if before.get(name) != settings.get(name)
        ]
        if different:
            raise OtherSettings(f"{folder} belongs to another run: {', '.join(different)}; name another with --work")
        for line in lines[1:]:
            usage = [json_format.ParseDict(one, common_pb2.TokenUsage()) for one in line["usage"]]
            self._keep(tuple(line["key"]), line["item"], line["value"], usage)
        self._file = path.open("a", encoding="utf-8")
        if not lines:
            self._write({"settings": dict(settings)})

    def get(self, key: Key, item: str = "") -> Any:
        """Returns the value of a record; None if there is none."""
        return self._values.get((key, item))

    def put(self, key: Key, item: str, value: Any, usage: Usage = ()) -> None:
        """Stores a record durably."""
        self._keep(key, item, value, usage)
        spent = [json_format.MessageToDict(one, preserving_proto_field_name=True) for one in usage]
        self._write({"key": key, "item": item, "value": value, "usage": spent})

    def spent(self, key: Key) -> Usage:
        """Returns the cost of all records under a key."""
        return self._usage[key]

    def close(self) -> None:
        self._file.close()

    def _keep(self, key: Key, item: str, value: Any, usage: Usage) -> None:
        self._values[key, item] = value
        self._usage[key] += usage

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
