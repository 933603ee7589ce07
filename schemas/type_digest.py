"""Which version of a memory type something was made by: a digest of all that the type says."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

from schemas.types import MemoryType


def type_digests(types: Iterable[MemoryType]) -> dict[str, str]:
    """SHA-256 of each type in hexadecimal digits, by name; another description of a field is another digest."""
    return {one.name: _digest(one) for one in types}


def _digest(type: MemoryType) -> str:
    return hashlib.sha256(json.dumps(asdict(type), sort_keys=True).encode()).hexdigest()
