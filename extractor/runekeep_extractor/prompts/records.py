"""Formats memories and search results as one JSON record per line.

JSON, so that no text of a memory can look like the next record, and so that the model can copy a SEARCH text verbatim.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from runekeep.v1 import memory_service_pb2
from runekeep_extractor.answers.operations import plain_value
from runekeep_schemas.memory_types.model import ABSTRACT

_JSON: Final = json.JSONEncoder(ensure_ascii=False)

Known = dict[str, str]
"""URI to memory type, for every memory that the model was shown."""


def line(record: Mapping[str, Any]) -> str:
    """Returns a record as one line; empty values are omitted."""
    said = {name: value for name, value in record.items() if value not in ("", None, [], {})}
    # U+2028 and similar characters end a line for some readers; JSON may escape them.
    text = _JSON.encode(said)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")


def memory_line(
    memory: memory_service_pb2.Memory,
    known: Known,
    most: int,
    score: float | None = None,
    without: Collection[str] = (),
) -> str:
    """Returns a memory with its fields, without empty ones and those of `without`, and records it in `known`. Its texts
    are cut to `most` characters in all.
    """
    known[memory.uri] = memory.memory_type
    fields = {name: plain_value(value) for name, value in sorted(memory.fields.items()) if name not in without}
    if str(fields.get(ABSTRACT.name, "")) in str(fields.get("content", "")):
        fields.pop(ABSTRACT.name, None)
    fields = {name: value for name, value in fields.items() if value != ""}
    cut: list[str] = []
    room = most
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    # Short texts come first, so that a long content never displaces a name or a topic.
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
    """Returns a directory entry in short form."""
    if entry.memory_type:
        known[entry.uri] = entry.memory_type
    return brief_line(f"{entry.uri}/" if entry.directory else entry.uri, entry.memory_type, entry.abstract)


def brief_line(uri: str, memory_type: str, abstract: str) -> str:
    """Returns a memory or directory by its name and abstract."""
    return line({"uri": uri, "memory_type": memory_type, "abstract": abstract})


def found_line(item: memory_service_pb2.FoundItem, known: Known, most: int) -> str:
    """Returns a search result as a record."""
    if item.HasField("memory"):
        return memory_line(item.memory, known, most, item.score)
    passage = item.passage
    return line({"passage": passage.text[:most], "session": passage.session, "score": round(item.score, 3)})
