"""Turns statements into operations on memories: new memories, lines added to existing ones, and corrections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from runekeep.v1 import extractor_service_pb2, memory_service_pb2
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.offline import operation_builders
from runekeep_extractor.offline.guard import RuleGuard
from runekeep_extractor.offline.known import Known, KnownLine
from runekeep_extractor.offline.operation_builders import MAX_FIELD_CHARS, SELF, Permit
from runekeep_extractor.offline.statements import (
    EVENT,
    FACT,
    NONE,
    NOTE,
    PREFERENCE,
    THING,
    Statement,
    rule_of,
)
from runekeep_extractor.offline.words import said_words, says_no_more, topic_words

MAX_STATEMENTS: Final = 300
"""Maximum per batch. Each statement costs a search."""
MAX_CORRECTIONS: Final = 100
"""Maximum statements per batch that may only take something back."""
MAX_CONTENT_CHARS: Final = 40_000
"""A memory of this length gets no more lines: they would be buried."""
# A statement may correct another if they share this many words, and this share of the shorter one.
_MIN_CORRECTED_WORDS: Final = 2
_MIN_CORRECTED_SHARE: Final = 0.5

PROFILE, PREFERENCES, ENTITIES, EVENTS = "profile", "preferences", "entities", "events"
# The type of each kind, and the fields that it needs; the first field names the memory.
_TYPES: Final = {
    FACT: (PROFILE, ("content",)),
    PREFERENCE: (PREFERENCES, ("topic", "content")),
    THING: (ENTITIES, ("entity_name", "content")),
    EVENT: (EVENTS, ("event_name", "content")),
    NOTE: (ENTITIES, ("entity_name", "content")),
}


@dataclass(slots=True)
class _Draft:
    """The planned changes of one memory."""

    type: memory_service_pb2.MemoryType
    owner: str
    uri: str
    fields: dict[str, str]
    added: list[Statement] = field(default_factory=list)
    replaced: list[tuple[KnownLine, Statement]] = field(default_factory=list)


async def memory_operations(
    job: Job, permit: Permit, statements: Sequence[Statement], guard: RuleGuard
) -> list[extractor_service_pb2.MemoryOperation]:
    """Returns the operations for statements, at most one on each memory."""
    said = [one for one in statements if one.sentence.owner is not None]
    kept = [one for one in said if one.kind != NONE and _type_of(one, permit) is not None][:MAX_STATEMENTS]
    retracting = [one for one in said if one.kind == NONE][:MAX_CORRECTIONS]
    known = Known(job, permit)
    types = [name for name in (PROFILE, PREFERENCES, ENTITIES, EVENTS) if name in permit.types]
    if kept or retracting:
        await guard.wait("known", known.look_up([*kept, *retracting], types), None)
        await guard.wait("profiles", _read_profiles([*kept, *retracting], permit, known), None)

    corrections, kept = await guard.wait(
        "corrections", asyncio.to_thread(_correct, [*kept, *retracting], known, permit), ([], kept)
    )
    kept = await guard.wait("repeats", asyncio.to_thread(_without_repeats, kept, known, corrections), kept)
    drafts: dict[str, _Draft] = {}
    deletions: dict[str, tuple[KnownLine, Statement]] = {}
    for line, statement in corrections:
        type = permit.types[line.memory_type]
        if line.memory_type == EVENTS or (statement.forgets and line.alone):
            deletions[line.uri] = (line, statement)
        else:
            draft = drafts.setdefault(line.uri, _Draft(type, line.owner, line.uri, {}))
            draft.replaced.append((line, statement))
    events: list[extractor_service_pb2.MemoryOperation] = []
    for statement in kept:
        guard.run("drafts", partial(_draft, statement, permit, drafts, events), None)
    written = [await guard.wait("contents", _operation(draft, known), None) for draft in drafts.values()]
    return [
        *(operation for operation in written if operation is not None),
        *(
            operation_builders.delete(
                uri, peer_id=line.owner, sequences=[one.sentence.sequence], reason="corrected in the conversation"
            )
            for uri, (line, one) in deletions.items()
        ),
        *events,
    ]


async def _read_profiles(statements: Sequence[Statement], permit: Permit, known: Known) -> None:
    """Reads profiles whole, because a search may rank other memories first."""
    type = permit.type(PROFILE, "content")
    if type is not None:
        for owner in sorted({statement.sentence.owner or SELF for statement in statements}):
            await known.content(type, owner, permit.uri(type, owner))


def _type_of(statement: Statement, permit: Permit) -> memory_service_pb2.MemoryType | None:
    name, fields = _TYPES[statement.kind]
    return permit.type(name, *fields)


def _correct(
    statements: Sequence[Statement], known: Known, permit: Permit
) -> tuple[list[tuple[KnownLine, Statement]], list[Statement]]:
    """Returns the known lines that statements take back, each with the statement that replaces it, and the statements
    to write. Of two conflicting statements of the batch the later one stays.
    """
    corrected: list[tuple[KnownLine, Statement]] = []
    written: list[Statement] = []
    for statement in statements:
        earlier = [
            one for one in written if _takes_back(statement, one.text, (one.kind, one.slot), one.sentence.speaker)
        ]
        earlier = [one for one in earlier if one.sentence.owner == statement.sentence.owner]
        written = [one for one in written if one not in earlier]
        lines = [
            line
            for line in known.lines(statement.sentence.owner or SELF)
            if line.memory_type in permit.types
            and (line.memory_type != EVENTS or line.alone)
            and _takes_back(statement, line.text, _rule_of(line, statement), line.speaker)
        ]
        corrected = [(line, one) for line, one in corrected if line not in lines]
        corrected += [(line, statement) for line in lines]
        if statement.kind == NONE and earlier and not lines and not statement.forgets:
            # A statement that only takes something back is kept with the kind of the statement that it takes back.
            written.append(replace(earlier[-1], sentence=statement.sentence, text=statement.text))
        elif statement.kind != NONE and all(line.memory_type == EVENTS for line in lines):
            written.append(statement)
    return corrected, written


def _rule_of(line: KnownLine, statement: Statement) -> tuple[str, str]:
    """Returns the kind and slot of a line, both empty if they do not matter."""
    rule = rule_of(line.text, statement.language) if statement.single or statement.corrects else None
    return (rule.kind, rule.slot) if rule is not None else (NONE, "")


def _takes_back(statement: Statement, text: str, rule: tuple[str, str], speaker: str) -> bool:
    """Returns whether a statement says that an earlier one of the same speaker is no longer true, or never was.

    A fact that holds only once at a time replaces the earlier one. Otherwise the wording must show a correction, and
    the subject, the denied part (`not on 16 March`) and most words must match. In doubt both stay.
    """
    if speaker not in ("", statement.sentence.speaker):
        return False
    if says_no_more(statement.text, text, statement.language):
        return statement.forgets
    is_alike = rule == (statement.kind, statement.slot)
    if statement.single and is_alike:
        return True
    if not statement.corrects or not (statement.retracts or is_alike):
        return False
    language = statement.language
    mine, theirs = topic_words(statement.text, language), topic_words(text, language)
    denied = language.cue("denied_part").search(statement.text)
    if denied is not None and not set(said_words(denied["rest"], language)) <= set(said_words(text, language)):
        return False
    is_denied = denied is not None and bool(topic_words(denied["rest"], language))
    if statement.name and not is_denied and not topic_words(statement.name, language) & theirs:
        return False
    shared = len(mine & theirs)
    # `twelve years, not eleven`: the denied part says which earlier statement of this slot is meant.
    needed = 1 if denied is not None and is_alike and statement.slot else _MIN_CORRECTED_WORDS
    return shared >= needed and shared >= _MIN_CORRECTED_SHARE * min(len(mine), len(theirs))


def _without_repeats(
    statements: Sequence[Statement], known: Known, corrections: Sequence[tuple[KnownLine, Statement]]
) -> list[Statement]:
    """Returns the statements that no memory of their owner and no earlier statement says already."""
    gone = {line.uri for line, _ in corrections if line.memory_type == EVENTS}
    new: list[Statement] = []
    for statement in statements:
        said = [
            (line.text, line.when) for line in known.lines(statement.sentence.owner or SELF) if line.uri not in gone
        ]
        said += [
            (one.text, one.when)
            for one in new
            if (one.sentence.owner, one.sentence.speaker) == (statement.sentence.owner, statement.sentence.speaker)
        ]
        if not any(
            (not when or not statement.when or when == statement.when)
            and says_no_more(statement.text, text, statement.language)
            for text, when in said
        ):
            new.append(statement)
    return new


def _draft(
    statement: Statement,
    permit: Permit,
    drafts: dict[str, _Draft],
    events: list[extractor_service_pb2.MemoryOperation],
) -> None:
    """Adds a statement to the draft of its memory, or adds an event as an operation to `events`."""
    type, owner = _type_of(statement, permit), statement.sentence.owner or SELF
    if type is None:
        return
    named = {_TYPES[statement.kind][1][0]: statement.name} if statement.kind != FACT else {}
    if statement.kind == EVENT:
        fields = {**named, "event_time": statement.when, "content": statement.line}
        events.append(
            operation_builders.write(
                type,
                {name: value for name, value in fields.items() if value},
                peer_id=owner,
                sequences=[statement.sentence.sequence],
                reason="said in the conversation",
            )
        )
        return
    if statement.kind == THING:
        named["entity_type"] = statement.what
    uri = permit.uri(type, owner, statement.name if statement.kind != FACT else "")
    drafts.setdefault(uri, _Draft(type, owner, uri, named)).added.append(statement)


async def _operation(draft: _Draft, known: Known) -> extractor_service_pb2.MemoryOperation | None:
    """Returns the operation of a draft, or None if nothing is left to do."""
    content = await known.content(draft.type, draft.owner, draft.uri)
    if known.is_too_large(draft.uri):
        return None
    statements = [*(statement for _, statement in draft.replaced), *draft.added]
    sequences = {statement.sentence.sequence for statement in statements}
    reason = "corrected in the conversation" if draft.replaced else "said in the conversation"
    if content is None:
        heading = ["# User profile", ""] if draft.type.name == PROFILE and draft.owner == SELF else []
        text = "\n".join([*heading, *map(_bullet, draft.added)])
        fields = {**draft.fields, "content": text}
        return operation_builders.write(draft.type, fields, peer_id=draft.owner, sequences=sequences, reason=reason)
    blocks = _blocks(draft, content)
    if not blocks:
        return None
    return operation_builders.edit(
        draft.uri, "content", blocks, peer_id=draft.owner, sequences=sequences, reason=reason
    )


def _blocks(draft: _Draft, content: str) -> list[tuple[str, str, int]]:
    """Returns blocks that change the corrected lines and insert new lines after the last one."""
    lines = content.split("\n")
    new: dict[int, list[str]] = {}
    for known, statement in draft.replaced:
        place = next((n for n, line in enumerate(lines) if line == known.line and n not in new), None)
        if place is not None:
            bullet = _bullet(statement) if known.line.lstrip().startswith(("- ", "* ")) else statement.line
            # Two lines taken back by one statement become one line.
            gone = statement.forgets or any(bullet in others for others in new.values())
            new[place] = [] if gone else [bullet]
    written = [n for n, line in enumerate(lines) if line.strip()]
    if draft.added and not written:
        return [("", "\n".join(map(_bullet, draft.added)), 0)]
    if draft.added and len(content) < MAX_CONTENT_CHARS:
        room = MAX_FIELD_CHARS
        added = new.setdefault(written[-1], [lines[written[-1]]])
        for statement in draft.added:
            bullet = _bullet(statement)
            room -= len(bullet) + 1
            if room >= 0:
                # Markdown needs a blank line between a heading and a list.
                added += ["", bullet] if len(added) == 1 and added[0].startswith("#") else [bullet]
    return [_block(content, lines, place, replacement) for place, replacement in sorted(new.items())]


def _block(content: str, lines: Sequence[str], place: int, replacement: Sequence[str]) -> tuple[str, str, int]:
    search = lines[place]
    if not replacement and place + 1 < len(lines):
        # Includes the line break, else an empty line remains.
        search += "\n"
    return search, "\n".join(replacement), place + 1 if content.count(search) > 1 else 0


def _bullet(statement: Statement) -> str:
    return f"- {statement.line}"
