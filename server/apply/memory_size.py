"""How many bytes a memory takes at most in an answer, before it is written."""

from collections.abc import Mapping
from typing import Final

from schemas.moments import TAGS
from schemas.render import file_view, render_content
from schemas.types import ABSTRACT, OVERVIEW, FieldValue, MemoryType

ENVELOPE_BYTES: Final = 32 * 1024
"""For URI, views that the server derives, extractor, times and versions."""
_FIELD_BYTES: Final = 64
"""Of a field beside its name and its text."""
_SOURCE_BYTES: Final = 512
"""Of a message that the memory names: URI of the session, id and sequence."""


def memory_size(type: MemoryType, fields: Mapping[str, FieldValue], sources: int) -> int:
    """Bytes that GetMemory takes to return the memory, rather too many than too few, or those of its file, whichever is
    more. `sources`: how many messages it names."""
    size = ENVELOPE_BYTES + sources * _SOURCE_BYTES + _bytes(render_content(type, fields))
    for name, value in fields.items():
        text = _bytes(str(value))
        size += len(name) + _FIELD_BYTES + text
        if name in (ABSTRACT.name, OVERVIEW.name, TAGS):
            # It stands beside the fields once more.
            size += text
    return max(size, ENVELOPE_BYTES + _bytes(file_view(type, fields)))


def _bytes(text: str) -> int:
    return len(text.encode())
