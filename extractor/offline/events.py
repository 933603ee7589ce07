"""Events: a statement each, named by its own words, with the date that they tell."""

from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.cues import without_interjection
from extractor.offline.operations import write
from extractor.offline.plan import Permit
from extractor.offline.prototypes import EVENTS
from runekeep.v1 import extractor_service_pb2

_NAME_LIMIT: Final = 80
_NAME_WORDS: Final = 12


def event_operations(statements: list[Statement], permit: Permit) -> list[extractor_service_pb2.MemoryOperation]:
    """One write an event; two of one name and day become one."""
    type = permit.type(EVENTS, "event_name", "content")
    if type is None:
        return []
    groups: dict[tuple[str, str, str], list[Statement]] = {}
    for statement in statements:
        key = (statement.sentence.owner or "", event_name(statement), statement.dated.when)
        groups.setdefault(key, []).append(statement)
    return [
        write(
            type,
            {
                "event_name": name,
                "event_time": when,
                "content": "\n".join(dict.fromkeys(statement.line for statement in group)),
            },
            peer_id=owner,
            sequences=[statement.sentence.sequence for statement in group],
            reason="said in the conversation",
        )
        for (owner, name, when), group in groups.items()
    ]


def event_name(statement: Statement) -> str:
    """Who, and the beginning of the sentence without its relative dates."""
    text = without_interjection(statement.dated.undated.strip().rstrip(".!。！ "))
    words = text.split()
    short = " ".join(words[:_NAME_WORDS])
    if len(short) > _NAME_LIMIT:
        short = short[:_NAME_LIMIT].rsplit(" ", 1)[0] if " " in short[:_NAME_LIMIT] else short[:_NAME_LIMIT]
    return f"{statement.sentence.speaker} - {short.rstrip(' ,;:')}"
