"""The profile: one document of facts about a person, a line each."""

from collections.abc import Sequence

from extractor.offline.classify import Statement
from extractor.offline.drafts import Draft, Drafts
from extractor.offline.known import Known
from extractor.offline.plan import SELF, Permit
from extractor.offline.prototypes import PROFILE


async def draft_profile(statements: Sequence[Statement], permit: Permit, known: Known, drafts: Drafts) -> None:
    """Put each statement into the profile of its owner."""
    type = permit.type(PROFILE, "content")
    if type is None:
        return
    for statement in statements:
        owner = statement.sentence.owner or SELF
        uri = known.uri(type, owner)
        # As the built-in type begins it; a peer's profile says whose it is.
        heading = "# User profile" if owner == SELF else f"# Profile of {owner}"
        await known.content(type, owner, uri)
        drafts.of(Draft(type, owner, uri, {}, heading)).added.append(statement)
