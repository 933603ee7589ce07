"""Estimates the size of a memory in an answer, before it is written."""

from collections.abc import Mapping
from typing import Final

from runekeep_schemas.documents.render import file_view, render_content
from runekeep_schemas.memory_types.event_time import TAGS
from runekeep_schemas.memory_types.model import ABSTRACT, OVERVIEW, FieldValue, MemoryType

ENVELOPE_BYTES: Final = 32 * 1024
"""Bytes for URI, derived views, extractor, times and versions."""
_FIELD_BYTES: Final = 64
"""Bytes of a field besides its name and its text."""
_SOURCE_BYTES: Final = 512
"""Bytes of a source: URI of the session, message id and sequence."""


def memory_size(type: MemoryType, fields: Mapping[str, FieldValue], sources: int) -> int:
    """Returns an upper estimate of the bytes of the memory in GetMemory, or of its file, whichever is larger.
    `sources`: number of messages that it names."""
    size = ENVELOPE_BYTES + sources * _SOURCE_BYTES + _bytes(render_content(type, fields))
    for name, value in fields.items():
        text = _bytes(str(value))
        size += len(name) + _FIELD_BYTES + text
        if name in (ABSTRACT.name, OVERVIEW.name, TAGS):
            # It occurs outside of the fields too.
            size += text
    return max(size, ENVELOPE_BYTES + _bytes(file_view(type, fields)))


def _bytes(text: str) -> int:
    return len(text.encode())
