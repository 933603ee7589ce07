"""Memories and other things found, one JSON record a line.

JSON, so that no text of a memory can look like the next record, and so that a SEARCH text can be copied as it stands.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from extractor.anthropic_engine.operations import plain_value
from runekeep.v1 import memory_service_pb2

_JSON: Final = json.JSONEncoder(ensure_ascii=False)

Known = dict[str, str]
"""URI to memory type, of every memory that the model was shown."""


def line(record: Mapping[str, Any]) -> str:
    """One record as one line; empty values are left out."""
    said = {name: value for name, value in record.items() if value not in ("", None, [], {})}
    # U+2028 and its kin would end a line for some readers; JSON may escape them.
    text = _JSON.encode(said)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")


def memory_line(memory: memory_service_pb2.Memory, known: Known, most: int, score: float | None = None) -> str:
    """A memory with its fields, its texts cut to `most` characters together, and noted in `known`."""
    known[memory.uri] = memory.memory_type
    fields = {name: plain_value(value) for name, value in sorted(memory.fields.items())}
    cut: list[str] = []
    room = most
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    # The short ones first: a name or a topic is never lost to a long content.
    for name, text in sorted(texts.items(), key=lambda item: len(item[1])):
        if len(text) > room:
            fields[name] = text[:room]
            cut.append(name)
        room -= min(room, len(text))
    return line(
        {
            "uri": memory.uri,
            "memory_type": memory.memory_type,
            "fields": fields,
            "abstract": "" if fields else memory.abstract,
            "cut_fields": cut,
            "score": None if score is None else round(score, 3),
        }
    )


def entry_line(entry: memory_service_pb2.DirectoryEntry, known: Known) -> str:
    """An entry of a directory in short."""
    if entry.memory_type:
        known[entry.uri] = entry.memory_type
    uri = f"{entry.uri}/" if entry.directory else entry.uri
    return line({"uri": uri, "memory_type": entry.memory_type, "abstract": entry.abstract})


def found_line(item: memory_service_pb2.FoundItem, known: Known, most: int) -> str:
    """A search result."""
    if item.HasField("memory"):
        return memory_line(item.memory, known, most, item.score)
    passage = item.passage
    return line({"passage": passage.text[:most], "session": passage.session, "score": round(item.score, 3)})
