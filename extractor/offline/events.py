"""Events: a statement each, named by its own words, with the date that they tell."""

from collections.abc import Collection, Sequence

from extractor.offline.classify import Statement
from extractor.offline.operations import write
from extractor.offline.phrases import short_name
from extractor.offline.plan import SELF, Permit
from extractor.offline.prototypes import EVENTS
from extractor.offline.sentences import Sentence
from runekeep.v1 import extractor_service_pb2


def event_operations(
    statements: Sequence[Statement], permit: Permit, speakers: Collection[str], corrections: Collection[int]
) -> list[extractor_service_pb2.MemoryOperation]:
    """One write an event; two of one name and day become one.

    `speakers` are those that feed the user's own memory, `corrections` the places of statements that take back others.
    """
    type = permit.type(EVENTS, "event_name", "content")
    if type is None:
        return []
    groups: dict[tuple[str, str, str], list[Statement]] = {}
    for statement in statements:
        key = (statement.sentence.owner or SELF, event_name(statement, speakers), statement.dated.when)
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
            sequences=[number for statement in group for number in statement.sequences],
            reason="corrected in the conversation"
            if any(statement.sentence.position in corrections for statement in group)
            else "said in the conversation",
        )
        for (owner, name, when), group in groups.items()
    ]


def event_name(statement: Statement, speakers: Collection[str]) -> str:
    """The sentence without its dates, shortened; with who said it where the place of the memory does not tell that."""
    sentence = statement.sentence
    name = short_name(statement.dated.undated) or short_name(statement.dated.text)
    return f"{sentence.speaker} - {name}" if _needs_speaker(sentence, speakers) else name


def _needs_speaker(sentence: Sentence, speakers: Collection[str]) -> bool:
    """An agent's words are not the user's, and of several people who feed one memory each is named."""
    return sentence.assistant or (sentence.owner == SELF and len(speakers) > 1)
