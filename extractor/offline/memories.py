"""From classified statements to operations of the long-term types."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from extractor.engine import Job
from extractor.offline.cases import Case, case_operations, find_cases
from extractor.offline.classify import Statement, stored_from
from extractor.offline.compare import without_repeats
from extractor.offline.corrections import Correction, corrections, may_correct
from extractor.offline.cues import FIRST_PERSON
from extractor.offline.drafts import Draft, Drafts
from extractor.offline.entities import draft_entities
from extractor.offline.events import event_operations
from extractor.offline.followers import joined
from extractor.offline.guard import RuleGuard
from extractor.offline.keywords import content_words, stem
from extractor.offline.known import Known, KnownLine
from extractor.offline.likeness import Likeness
from extractor.offline.names import names_written_within
from extractor.offline.operations import delete
from extractor.offline.patterns import pattern_operations
from extractor.offline.plan import SELF, Permit
from extractor.offline.preferences import draft_preferences
from extractor.offline.profile import draft_profile
from extractor.offline.prototypes import CASES, ENTITIES, EVENTS, PATTERNS, PREFERENCES, PROFILE
from runekeep.v1 import extractor_service_pb2, memory_service_pb2

# Statements of one batch that are kept, the most salient ones, and of those that may only take something back. Each is
# searched for.
_MOST: Final = 300
_MOST_CORRECTIONS: Final = 100
_STATED: Final = (PROFILE, PREFERENCES, ENTITIES, EVENTS, PATTERNS)


async def memory_operations(
    job: Job, permit: Permit, statements: Sequence[Statement], likeness: Likeness, guard: RuleGuard
) -> list[extractor_service_pb2.MemoryOperation]:
    """Returns the operations for the long-term types that sentences tell of; at most one on each memory."""
    types = [name for name in _STATED if name in permit.types]
    known = Known(job, permit)
    # Before any rule compares them: dates written out, they are other texts than the sentences that were learned.
    await likeness.learn([statement.dated.text for statement in statements])
    cases, kept, worded_as_correction = await asyncio.to_thread(_sort_out, statements, permit, types, likeness, guard)
    asked = [*kept, *worded_as_correction, *(case.problem for case in cases)]
    if asked:
        searched = [*types, *([CASES] if cases else [])]
        await guard.wait("known", known.look_up(list(dict.fromkeys(asked)), searched), None)
        await guard.wait("profiles", _read_profiles(kept, permit, known), None)
    lines: list[KnownLine] = await guard.wait("near_lines", asyncio.to_thread(_near_lines, known, permit, asked), [])
    await likeness.learn([line.text for line in lines])

    fixed = {name for name in types if permit.types[name].operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY}
    corrected = await asyncio.to_thread(corrections, [*kept, *worded_as_correction], lines, fixed, likeness, guard)
    drafts = Drafts()
    apply = partial(_apply_corrections, kept, corrected, fixed, permit, drafts)
    kept, taken_back = guard.run("apply_corrections", apply, (kept, []))
    gone = {line.uri for line, _ in taken_back}
    left = [line for line in lines if line.uri not in gone]
    kept = await guard.wait("repeats", asyncio.to_thread(without_repeats, kept, left, likeness), kept)

    by_kind = {kind: [statement for statement in kept if statement.kind == kind] for kind in _STATED}
    drafting = draft_entities(
        by_kind[ENTITIES],
        permit,
        known,
        drafts,
        speakers=sorted({statement.sentence.speaker for statement in statements}),
        trusted=names_written_within([statement.sentence for statement in statements]),
    )
    nameless: list[Statement] = await guard.wait("entities", drafting, [])
    # What is said of somebody without a name is about the speaker's own life, or about nothing that can be found.
    own = [statement for statement in nameless if FIRST_PERSON.search(statement.sentence.text) is not None]
    facts = sorted([*by_kind[PROFILE], *own], key=lambda statement: statement.sentence.position)
    await guard.wait("profile", draft_profile(facts, permit, known, drafts), None)
    preferring = draft_preferences(by_kind[PREFERENCES], permit, known, lines, drafts, likeness)
    await guard.wait("preferences", preferring, None)

    operations = [await guard.wait("drafts", _operation(draft, known), None) for draft in drafts.all()]
    speakers = {s.sentence.speaker for s in statements if s.sentence.owner == SELF and not s.sentence.assistant}
    places = {correction.statement.sentence.position for correction in corrected}
    return [
        *(operation for operation in operations if operation is not None),
        *_deletions(taken_back),
        *guard.run("events", lambda: event_operations(by_kind[EVENTS], permit, speakers, places), []),
        *guard.run("patterns", lambda: pattern_operations(by_kind[PATTERNS], permit), []),
        *guard.run("case_operations", lambda: case_operations(cases, permit, lines, likeness), []),
    ]


async def _operation(draft: Draft, known: Known) -> extractor_service_pb2.MemoryOperation | None:
    content = await known.content(draft.type, draft.owner, draft.uri)
    return None if known.is_too_large(draft.uri) else draft.operation(content)


def _sort_out(
    statements: Sequence[Statement], permit: Permit, types: Sequence[str], likeness: Likeness, guard: RuleGuard
) -> tuple[list[Case], list[Statement], list[Statement]]:
    """The cases, the statements worth keeping, and besides them those that may only take back something."""
    least = stored_from(likeness)
    cases = find_cases(statements, permit, likeness, guard)
    solved = {position for case in cases for position in case.positions}
    followed = guard.run("followers", lambda: joined(statements, least), list(statements))
    told = [statement for statement in followed if statement.sentence.position not in solved]
    kept = _worth_keeping(told, types, least)
    taken = {statement.sentence.position for statement in kept}
    others = [
        statement
        for statement in told
        if statement.sentence.owner is not None and statement.sentence.position not in taken and may_correct(statement)
    ]
    return cases, kept, _most_salient(others, _MOST_CORRECTIONS)


def _worth_keeping(statements: Sequence[Statement], types: Sequence[str], least: float) -> list[Statement]:
    worth = [
        statement
        for statement in statements
        if statement.sentence.owner is not None and statement.kind in types and statement.salience >= least
    ]
    return _most_salient(worth, _MOST)


def _most_salient(statements: Sequence[Statement], most: int) -> list[Statement]:
    """So many of them, in the order in which they were said."""
    ranked = sorted(statements, key=lambda statement: (-statement.salience, statement.sentence.position))
    return sorted(ranked[:most], key=lambda statement: statement.sentence.position)


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
    returned: set[int] = set()
    anew: dict[int, Statement] = {}
    taken_back: list[tuple[KnownLine, Statement]] = []
    for correction in corrected:
        key = id(correction.statement)
        if correction.beside:
            # Written as what it stands beside: the words of a correction alone may not show what they are about.
            anew.setdefault(key, correction.statement)
            kinds = [*(one.kind for one in correction.earlier), *(line.memory_type for line in correction.replaced)]
            kind_of.setdefault(key, kinds[0])
            continue
        # What leaned on the old statement, and was not taken back, leans on the new one.
        leaning = [*(one.more for one in correction.earlier), *(line.more for line in correction.replaced)]
        more = " ".join(filter(None, dict.fromkeys([*leaning, correction.statement.more])))
        statement = replace(correction.statement, more=more)
        for earlier in correction.earlier:
            gone.add(id(earlier))
            anew[key] = statement
            kind_of[key] = kind_of.get(id(earlier), earlier.kind)
        for line in correction.replaced:
            if line.memory_type in fixed:
                taken_back.append((line, statement))
                returned.add(key)
                anew[key] = statement
                kind_of[key] = line.memory_type
                continue
            type = permit.types[line.memory_type]
            draft = drafts.of(Draft(type, line.owner, line.uri, {}))
            draft.replaced = [pair for pair in draft.replaced if pair[0].line != line.line]
            draft.replaced.append((line, statement))
            placed.add(key)
    gone |= placed - returned
    statements = {id(statement): statement for statement in kept} | anew
    left = [
        replace(statement, kind=kind_of.get(key, statement.kind))
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
