"""Patterns: ways of working that somebody says they follow, a memory each."""

import re
from collections.abc import Sequence
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.operations import write
from extractor.offline.phrases import short_name
from extractor.offline.plan import SELF, Permit
from extractor.offline.prototypes import PATTERNS
from runekeep.v1 import extractor_service_pb2

_KIND: Final = re.compile(r"\b(?P<kind>workflow|process|method|checklist)\b", re.I)


def pattern_operations(statements: Sequence[Statement], permit: Permit) -> list[extractor_service_pb2.MemoryOperation]:
    """One write for each way of working, under the first words that name it."""
    type = permit.type(PATTERNS, "pattern_name", "content")
    if type is None:
        return []
    operations = []
    for statement in statements:
        kind = _KIND.search(statement.sentence.text)
        operations.append(
            write(
                type,
                {
                    "pattern_name": short_name(statement.dated.undated) or short_name(statement.dated.text),
                    "pattern_type": kind["kind"].lower() if kind else "process",
                    "content": statement.line,
                },
                peer_id=statement.sentence.owner or SELF,
                sequences=statement.sequences,
                reason="said in the conversation",
            )
        )
    return operations
