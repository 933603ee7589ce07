"""Entities: what was said of a named person or thing, under its name."""

from collections.abc import Sequence

from extractor.offline.classify import Statement
from extractor.offline.drafts import Draft, Drafts
from extractor.offline.known import Known
from extractor.offline.names import names_in
from extractor.offline.plan import SELF, Permit
from extractor.offline.prototypes import ENTITIES


async def draft_entities(
    statements: Sequence[Statement],
    permit: Permit,
    known: Known,
    drafts: Drafts,
    *,
    speakers: Sequence[str],
    trusted: frozenset[str],
) -> list[Statement]:
    """Put each statement under the first thing that it names. Gives back those that name nothing.

    `speakers` and `trusted` as in `names_in`.
    """
    type = permit.type(ENTITIES, "entity_name", "content")
    nameless = []
    for statement in statements:
        names = names_in(statement.sentence.text, speakers, trusted)
        if not names:
            nameless.append(statement)
            continue
        if type is None:
            continue
        owner, name = statement.sentence.owner or SELF, names[0]
        uri = known.uri(type, owner, name.text)
        await known.content(type, owner, uri)
        fields = {"entity_name": name.text} | ({"entity_type": name.entity_type} if name.entity_type else {})
        drafts.of(Draft(type, owner, uri, fields)).added.append(statement)
    return nameless
