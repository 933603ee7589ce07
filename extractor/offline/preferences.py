"""Preferences: statements of one topic together."""

import asyncio
from collections.abc import Sequence
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.drafts import Draft, Drafts
from extractor.offline.known import Known, KnownLine
from extractor.offline.likeness import RULES, Likeness
from extractor.offline.plan import SELF, Permit
from extractor.offline.prototypes import PREFERENCES
from extractor.offline.topics import topic_of

# Above `Likeness.related`: two wishes about food are related, but a topic is narrower.
_ONE_TOPIC_ADDS: Final = 0.1


async def draft_preferences(
    statements: Sequence[Statement],
    permit: Permit,
    known: Known,
    lines: Sequence[KnownLine],
    drafts: Drafts,
    likeness: Likeness,
) -> None:
    """Put each statement to the nearest topic, of `lines` or of this batch, else under a topic of its own."""
    type = permit.type(PREFERENCES, "topic", "content")
    if type is None:
        return
    least = likeness.related + (_ONE_TOPIC_ADDS if likeness.name != RULES else 0.0)
    for statement in statements:
        owner = statement.sentence.owner or SELF
        text = statement.dated.text
        topics = [
            *((line.text, line.uri) for line in lines if line.memory_type == PREFERENCES and line.owner == owner),
            *(
                (other.dated.text, draft.uri)
                for draft in drafts.all()
                if draft.type.name == PREFERENCES and draft.owner == owner
                for other in draft.added
            ),
        ]
        score, uri = await asyncio.to_thread(_nearest, text, topics, likeness)
        fields: dict[str, str] = {}
        if score < least:
            topic = topic_of(statement.sentence.text)
            if not topic:
                continue
            uri = known.uri(type, owner, topic)
            await known.content(type, owner, uri)
            fields = {"topic": topic}
        drafts.of(Draft(type, owner, uri, fields)).added.append(statement)


def _nearest(text: str, topics: Sequence[tuple[str, str]], likeness: Likeness) -> tuple[float, str]:
    return max(((likeness.between(text, other), uri) for other, uri in topics), default=(0.0, ""))
