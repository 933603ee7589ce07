"""What somebody understood when it was said, as evidence for what is kept of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extractor.offline.classify import Statement, stored_from
from extractor.offline.cues import FIRST_PERSON
from extractor.offline.keywords import content_words
from extractor.offline.likeness import Likeness
from extractor.offline.prototypes import ENTITIES, NONE, PREFERENCES, PROFILE
from extractor.offline.sentences import words_of
from runekeep.v1 import common_pb2, turn_memory_service_pb2

# The rules found no reason against it, or only that it is nobody's own by its words.
_UNSURE: Final = frozenset({"", "general"})
_WISHES: Final = frozenset(
    {turn_memory_service_pb2.SIGNAL_SEVERITY_MUST, turn_memory_service_pb2.SIGNAL_SEVERITY_PREFER}
)
# What holds for the task at hand alone is no lasting preference.
_PASSING: Final = frozenset(
    {
        turn_memory_service_pb2.SIGNAL_SCOPE_OBJECTIVE,
        turn_memory_service_pb2.SIGNAL_SCOPE_ARTIFACT,
        turn_memory_service_pb2.SIGNAL_SCOPE_THREAD,
    }
)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value as words, and as what a statement that holds it counts."""

    words: tuple[str, ...]
    kind: str


def confirmed(
    statements: Sequence[Statement],
    messages: Iterable[common_pb2.Message],
    turns: Iterable[turn_memory_service_pb2.CandidateTurn],
    likeness: Likeness,
) -> list[Statement]:
    """The statements, those of them lifted to what is kept that a fingerprint of their turn speaks for.

    Such a one is a user's, the rules had nothing against it, and a value of its turn's wishes (MUST or PREFER) or plain
    facts (HIGH) stands in it word for word.
    """
    values = {
        one.turn.turn_id: list(_values(one.turn.fingerprint)) for one in turns if one.turn.HasField("fingerprint")
    }
    turn_of = {one.sequence: one.turn_id for one in messages if one.role == common_pb2.ROLE_USER}
    least = stored_from(likeness)
    return [_lifted(one, values.get(turn_of.get(one.sentence.sequence, ""), ()), least) for one in statements]


def _lifted(statement: Statement, values: Iterable[_Value], least: float) -> Statement:
    if statement.sentence.assistant or statement.doubt not in _UNSURE:
        return statement
    if statement.kind != NONE and statement.salience >= least:
        return statement
    said = tuple(statement.sentence.words)
    value = next((value for value in values if _holds(said, value.words)), None)
    if value is None:
        return statement
    kind = statement.kind if statement.kind != NONE else value.kind
    if kind == PROFILE and FIRST_PERSON.search(statement.sentence.text) is None:
        kind = ENTITIES
    return replace(statement, kind=kind, salience=max(least, statement.salience), doubt="")


def _values(fingerprint: turn_memory_service_pb2.TurnFingerprint) -> Iterator[_Value]:
    for signal in fingerprint.assertions:
        if signal.severity in _WISHES and signal.scope not in _PASSING:
            yield from _worded(signal, PREFERENCES)
    for signal in fingerprint.facts:
        if signal.severity == turn_memory_service_pb2.SIGNAL_SEVERITY_HIGH and signal.scope not in _PASSING:
            yield from _worded(signal, PROFILE)


def _worded(signal: turn_memory_service_pb2.TurnSignal, kind: str) -> Iterator[_Value]:
    """Its value, where that is words; a number alone stands in too many sentences."""
    if signal.value.WhichOneof("kind") == "string_value" and content_words(signal.value.string_value):
        yield _Value(tuple(word.lower() for word in words_of(signal.value.string_value)), kind)


def _holds(said: Sequence[str], words: Sequence[str]) -> bool:
    return any(tuple(said[start : start + len(words)]) == words for start in range(len(said) - len(words) + 1))
