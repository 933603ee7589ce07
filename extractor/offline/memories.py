"""From classified statements to operations of the long-term types."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from extractor.engine import Job
from extractor.offline.cases import case_operations
from extractor.offline.classify import Statement, stored_from
from extractor.offline.compare import Correction, corrections, may_correct, without_repeats
from extractor.offline.cues import FIRST_PERSON
from extractor.offline.drafts import Draft, Drafts
from extractor.offline.entities import draft_entities
from extractor.offline.events import event_operations
from extractor.offline.keywords import content_words, stem
from extractor.offline.known import Known, KnownLine
from extractor.offline.likeness import Likeness
from extractor.offline.names import names_written_within
from extractor.offline.operations import delete
from extractor.offline.plan import SELF, Permit
from extractor.offline.preferences import draft_preferences
from extractor.offline.profile import draft_profile
from extractor.offline.prototypes import ENTITIES, EVENTS, PREFERENCES, PROFILE
from runekeep.v1 import extractor_service_pb2, memory_service_pb2

# Statements of one batch that are kept, the most salient ones.
_MOST: Final = 300
_STATED: Final = (PROFILE, PREFERENCES, ENTITIES, EVENTS)


async def memory_operations(
    job: Job, permit: Permit, statements: Sequence[Statement], likeness: Likeness
) -> list[extractor_service_pb2.MemoryOperation]:
    """Operations for profile, preferences, entities, events and cases; at most one on each memory."""
    types = [name for name in _STATED if name in permit.types]
    known = Known(job, permit)
    kept = _worth_keeping(statements, types, stored_from(likeness))
    worded_as_correction = [s for s in statements if s.sentence.owner is not None and may_correct(s)]
    if types:
        await known.look_up(list(dict.fromkeys([*kept, *worded_as_correction])), types)
        await _read_profiles(kept, permit, known)
    lines = _near_lines(known, permit, [*kept, *worded_as_correction])
    await likeness.learn([*(line.text for line in lines), *(statement.dated.text for statement in statements)])

    fixed = {name for name in types if permit.types[name].operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY}
    corrected = corrections([*dict.fromkeys([*kept, *worded_as_correction])], lines, fixed, likeness)
    drafts = Drafts()
    kept, taken_back = _apply_corrections(kept, corrected, fixed, permit, drafts)
    gone = {line.uri for line, _ in taken_back}
    kept = without_repeats(kept, [line for line in lines if line.uri not in gone], likeness)

    by_kind = {kind: [statement for statement in kept if statement.kind == kind] for kind in _STATED}
    nameless = await draft_entities(
        by_kind[ENTITIES],
        permit,
        known,
        drafts,
        speakers=sorted({statement.sentence.speaker for statement in statements}),
        trusted=names_written_within([statement.sentence for statement in statements]),
    )
    # What is said of somebody without a name is about the speaker's own life, or about nothing that can be found.
    own = [statement for statement in nameless if FIRST_PERSON.search(statement.sentence.text) is not None]
    facts = sorted([*by_kind[PROFILE], *own], key=lambda statement: statement.sentence.position)
    await draft_profile(facts, permit, known, drafts)
    await draft_preferences(by_kind[PREFERENCES], permit, known, lines, drafts, likeness)

    operations = [draft.operation(await known.content(draft.type, draft.owner, draft.uri)) for draft in drafts.all()]
    return [
        *(operation for operation in operations if operation is not None),
        *_deletions(taken_back),
        *event_operations(
            by_kind[EVENTS],
            permit,
            {s.sentence.speaker for s in statements if s.sentence.owner == SELF and not s.sentence.assistant},
            {correction.statement.sentence.position for correction in corrected},
        ),
        *case_operations(statements, permit, likeness),
    ]


def _worth_keeping(statements: Sequence[Statement], types: Sequence[str], least: float) -> list[Statement]:
    worth = [
        statement
        for statement in statements
        if statement.sentence.owner is not None and statement.kind in types and statement.salience >= least
    ]
    worth.sort(key=lambda statement: (-statement.salience, statement.sentence.position))
    return sorted(worth[:_MOST], key=lambda statement: statement.sentence.position)


def _apply_corrections(
    kept: Sequence[Statement],
    corrected: Sequence[Correction],
    fixed: Collection[str],
    permit: Permit,
    drafts: Drafts,
) -> tuple[list[Statement], list[tuple[KnownLine, Statement]]]:
    """Draft the lines that are replaced, and take out of the kept statements what a later one takes back.

    A statement that replaces a line of a memory is written there and nowhere else; one that replaces a statement of
    the batch is kept as what that one was. Lines of `fixed` types are given back, with what is written in their stead.
    """
    kind_of = {id(statement): statement.kind for statement in kept}
    gone: set[int] = set()
    placed: set[int] = set()
    anew: dict[int, Statement] = {}
    taken_back: list[tuple[KnownLine, Statement]] = []
    for correction in corrected:
        key = id(correction.statement)
        for earlier in correction.earlier:
            gone.add(id(earlier))
            anew[key] = correction.statement
            kind_of[key] = kind_of.get(id(earlier), earlier.kind)
        for line in correction.replaced:
            if line.memory_type in fixed:
                taken_back.append((line, correction.statement))
                anew[key] = correction.statement
                kind_of[key] = line.memory_type
                continue
            type = permit.types[line.memory_type]
            draft = drafts.of(Draft(type, line.owner, line.uri, {}))
            draft.replaced = [pair for pair in draft.replaced if pair[0].line != line.line]
            draft.replaced.append((line, correction.statement))
            placed.add(key)
    gone |= placed - {id(statement) for _, statement in taken_back}
    statements = {id(statement): statement for statement in kept} | anew
    left = [
        Statement(statement.sentence, statement.dated, kind_of.get(key, statement.kind), statement.salience)
        for key, statement in statements.items()
        if key not in gone
    ]
    return sorted(left, key=lambda statement: statement.sentence.position), taken_back


def _deletions(taken_back: Sequence[tuple[KnownLine, Statement]]) -> list[extractor_service_pb2.MemoryOperation]:
    """One for each memory; its versions go on telling what was said first."""
    return [
        delete(
            line.uri,
            peer_id=line.owner,
            sequences=[statement.sentence.sequence],
            reason="corrected in the conversation",
        )
        for line, statement in {line.uri: (line, statement) for line, statement in taken_back}.values()
    ]


async def _read_profiles(statements: Sequence[Statement], permit: Permit, known: Known) -> None:
    """A profile is one long document: a search may find others first, so it is always read."""
    type = permit.type(PROFILE, "content")
    if type is not None:
        for owner in sorted({statement.sentence.owner or SELF for statement in statements}):
            await known.content(type, owner, known.uri(type, owner))


def _near_lines(known: Known, permit: Permit, statements: Sequence[Statement]) -> list[KnownLine]:
    """The known lines that share a word of content with a statement of their owner: the rest need no comparing."""
    lines = []
    for owner in [*([SELF] if permit.allow_self else []), *sorted(permit.peers)]:
        said = {
            stem(word)
            for statement in statements
            if statement.sentence.owner == owner
            for word in content_words(statement.sentence.text)
        }
        lines += [line for line in known.lines(owner) if said & {stem(word) for word in content_words(line.text)}]
    return lines
