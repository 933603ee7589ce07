"""States of a memory held against each other: what it says at one revision and at another."""

import json

from schemas.registry import Registry
from server.tree.documents import File, file_text
from storage.records import Memory


def says_the_same(one: Memory | None, other: Memory | None) -> bool:
    """Whether both say the same, whoever wrote them and when; None is a memory that is not there."""
    if one is None or other is None:
        return one is other
    return _said(one) == _said(other)


def _said(memory: Memory) -> tuple[object, ...]:
    return memory.memory_type, json.loads(memory.fields), memory.content, memory.abstract, memory.overview


def text_of(memory: Memory | None, registry: Registry) -> str:
    """The document, as ReadDocument gives it; empty where there is none."""
    return file_text(File(memory.memory_type, memory.fields, memory.content), registry) if memory else ""
