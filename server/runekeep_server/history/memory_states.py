"""Compares states of a memory at two revisions."""

import json

from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories.tree.documents import File, file_text
from runekeep_storage.records import Memory


def says_the_same(one: Memory | None, other: Memory | None) -> bool:
    """Returns whether both states have the same content, whoever wrote them and when. None is a memory that does not
    exist."""
    if one is None or other is None:
        return one is other
    return _said(one) == _said(other)


def _said(memory: Memory) -> tuple[object, ...]:
    return memory.memory_type, json.loads(memory.fields), memory.content, memory.abstract, memory.overview


def text_of(memory: Memory | None, registry: Registry) -> str:
    """Returns the document as ReadDocument gives it; empty for None."""
    return file_text(File(memory.memory_type, memory.fields, memory.content), registry) if memory else ""
