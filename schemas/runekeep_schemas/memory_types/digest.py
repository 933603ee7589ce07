"""Identifies versions of memory types by a digest of their whole declaration."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

from runekeep_schemas.memory_types.model import MemoryType


def type_digests(types: Iterable[MemoryType]) -> dict[str, str]:
    """Returns the SHA-256 of each type in hexadecimal digits, by name. Even another description of a field changes the
    digest.
    """
    return {one.name: _digest(one) for one in types}


def _digest(type: MemoryType) -> str:
    return hashlib.sha256(json.dumps(asdict(type), sort_keys=True).encode()).hexdigest()
