"""Defines the model's answer about turns, and reads it tolerantly."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from runekeep.v1 import memory_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.answers.answer import (
    AnswerPart,
    BareSchema,
    Lines,
    SummaryAlone,
    WireAnswer,
    as_list,
    wire_schema,
)
from runekeep_extractor.answers.parse import find_object, plain_name, with_names
from runekeep_extractor.turns.aliases import worded_name
from runekeep_extractor.turns.reconciler import (
    FEEDBACK,
    SELECTION,
    SelectionAnswer,
    read_feedback,
    read_selection,
)
from runekeep_extractor.turns.signal_answer import Assertion, Exclusion, Fact, Promoted, read_signals
from runekeep_schemas.turns.checks import bounded, bounded_summary
from runekeep_schemas.turns.fingerprint import LISTS, TARGETS, Fingerprint, Query, Signal
from runekeep_schemas.turns.summary import LISTS as SUMMARY_LISTS
from runekeep_schemas.turns.summary import TEXTS as SUMMARY_TEXTS
from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.text import line

SAID_BY_THE_USER: Final = ("assertions", "exceptions", "facts")
_SIGNALS: Final = "assistant_signals"
_TITLE: Final = "conversation_title"
_SUMMARY: Final = "summary"
_QUERIES: Final = "ctx_retrieval_queries"


class NotedTurn(AnswerPart):
    turn: str
    objective: str
    topics: Lines
    assertions: list[Assertion]
    exceptions: list[Exclusion]
    facts: list[Fact]


class QueryAnswer(AnswerPart):
    where: Literal["user", "assistant", "assistant_artifact"]
    query: str
    reason: str


class TurnSummaryAnswer(AnswerPart):
    user_inquiry: str
    user_message_description: str
    assistant_answer: str
    delivered_to_user: str
    done: Lines
    not_done: Lines
    assumptions: Lines
    risks: Lines
    notes: str


class TurnAnswer(SelectionAnswer, NotedTurn):
    """A whole answer about one turn, as its schema shows it. What comes back is read by `read_turn`."""

    assistant_signals: list[Promoted]
    ctx_retrieval_queries: list[QueryAnswer]
    conversation_title: str
    summary: TurnSummaryAnswer


_NOTES: Final = TurnAnswer.model_fields.keys() - SelectionAnswer.model_fields.keys()


class _AnswerWithTurns(WireAnswer):
    turns: list[NotedTurn]


class _SummaryWithTurns(SummaryAlone):
    turns: list[NotedTurn]


@dataclass(frozen=True, slots=True)
class Asked:
    """The requested parts of an answer about one turn. `user_spoke`: whether the user said anything in the turn;
    `summary`: false if the turn has no answer yet and a selection is requested."""

    turn_id: str
    user_spoke: bool
    signals: bool
    title: bool
    summary: bool = True
    selection: bool = False
    feedback: bool = False

    @property
    def unwanted(self) -> list[str]:
        """Names of the parts that are not requested."""
        wanted = {
            _SIGNALS: self.signals,
            _TITLE: self.title,
            _SUMMARY: self.summary,
            **dict.fromkeys(SELECTION, self.selection),
            FEEDBACK: self.feedback,
        }
        return [name for name, is_wanted in wanted.items() if not is_wanted]


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """The readable parts of an answer. `dropped` counts entries that were unreadable or not requested. `empty`: the
    answer states that there is nothing to note. `selection`: None if it is not requested, missing, or unreadable.
    """

    fingerprint: Fingerprint
    summary: Summary
    dropped: int
    empty: bool
    selection: pb.TurnSelection | None = None
    feedback: list[pb.Feedback] = field(default_factory=list)


def turn_schema(asked: Asked) -> dict[str, Any]:
    """Returns the JSON schema of an answer about one turn. There are few variants, so that their compiled grammars stay
    cached.
    """
    schema = TurnAnswer.model_json_schema(mode="serialization", schema_generator=BareSchema)
    for name in ("turn", *asked.unwanted):
        del schema["properties"][name]
        schema["required"].remove(name)
    return schema


def operations_schema(types: Iterable[memory_service_pb2.MemoryType], *, turns: bool) -> dict[str, Any]:
    """Returns the JSON schema of an answer to a commit, with turn notes if requested; without types it has no
    operations.
    """
    wanted = list(types)
    if not wanted:
        return wire_schema(wanted, _SummaryWithTurns if turns else SummaryAlone)
    return wire_schema(wanted, _AnswerWithTurns if turns else WireAnswer)


def read_turn(text: str, asked: Asked) -> ReadTurn:
    """Returns the parts of a model's text about one turn. Raises Unreadable if it holds no such object."""
    found = find_object(text, TurnAnswer.model_fields, open_ended=(_SUMMARY,))
    signals, dropped = read_signals(found.data, LISTS)
    wanted = {*(SAID_BY_THE_USER if asked.user_spoke else ()), *([_SIGNALS] if asked.signals else [])}
    queries, unread = _queries(found.data.get(_QUERIES) if asked.user_spoke else None)
    dropped += int(found.cut) + unread + sum(len(held) for name, held in signals.items() if name not in wanted)
    fingerprint, left_out = _fingerprint(
        asked.turn_id,
        found.data,
        {name: held for name, held in signals.items() if name in wanted},
        queries=queries,
        title=_text(found.data.get(_TITLE)) if asked.title else "",
    )
    summary, unfit = _summary(found.data.get(_SUMMARY) if asked.summary else None)
    feedback, unfit_feedback = read_feedback(found.data.get(FEEDBACK) if asked.feedback else None)
    selection, unfit_ids = read_selection(found.data, cut=found.cut) if asked.selection else (None, 0)
    dropped += left_out + unfit + unfit_feedback + unfit_ids
    empty = not dropped and "objective" in found.data and _says_nothing(found.data, _NOTES)
    return ReadTurn(fingerprint, summary, dropped, empty, selection, feedback)


def read_noted(given: object, turn_ids: Mapping[str, str]) -> tuple[list[Fingerprint], int]:
    """Returns the fingerprints of the requested turns, and the number of dropped items. `turn_ids`: turn ids by short
    name. Entries with another name, and second entries for a turn, are dropped. An entry without content is a valid
    answer.
    """
    read: dict[str, Fingerprint] = {}
    dropped = 0
    for entry in _noted_entries(given):
        entry = with_names(entry, NotedTurn.model_fields) if isinstance(entry, Mapping) else {}
        turn_id = turn_ids.get(worded_name(entry.get("turn"), "turn"))
        if turn_id is None or turn_id in read:
            dropped += 1
            continue
        signals, unread = read_signals(entry, SAID_BY_THE_USER)
        fingerprint, left_out = _fingerprint(turn_id, entry, signals)
        dropped += unread + left_out
        if not fingerprint.is_empty:
            read[turn_id] = fingerprint
        elif not unread + left_out and not _says_nothing(entry, NotedTurn.model_fields.keys() - {"turn"}):
            dropped += 1
    return list(read.values()), dropped


def _fingerprint(
    turn_id: str,
    data: Mapping[str, Any],
    signals: Mapping[str, list[Signal]],
    *,
    queries: tuple[Query, ...] = (),
    title: str = "",
) -> tuple[Fingerprint, int]:
    topics = [one for one in as_list(data.get("topics")) if isinstance(one, str)]
    lists: dict[str, Any] = {name: tuple(held) for name, held in signals.items()}
    return bounded(
        Fingerprint(
            turn_id=turn_id,
            objective=_text(data.get("objective")),
            topics=tuple(topics),
            **lists,
            ctx_retrieval_queries=queries,
            conversation_title=title,
        )
    )


def _queries(given: object) -> tuple[tuple[Query, ...], int]:
    read: list[Query] = []
    entries = as_list(given)
    for entry in entries:
        entry = {"query": entry} if isinstance(entry, str) else entry
        entry = with_names(entry, QueryAnswer.model_fields) if isinstance(entry, Mapping) else {}
        query = _text(entry.get("query"))
        where = {plain_name(one): one for one in TARGETS}.get(plain_name(entry.get("where", "")), "")
        if query:
            read.append(Query(where, query, _text(entry.get("reason"))))
    return tuple(read), len(entries) - len(read)


def _summary(given: object) -> tuple[Summary, int]:
    if not isinstance(given, Mapping):
        return Summary(), int(given not in (None, "", []))
    data = with_names(given, TurnSummaryAnswer.model_fields)
    said: dict[str, Any] = {name: _text(data.get(name)) for name in SUMMARY_TEXTS}
    for name in SUMMARY_LISTS:
        said[name] = tuple(one for one in as_list(data.get(name)) if isinstance(one, str) and one.strip())
    return bounded_summary(Summary(**said))


def _noted_entries(given: object) -> list[Any]:
    """Returns the entries of a list, or of a mapping by name, which models without a schema tend to write."""
    if isinstance(given, Mapping) and "turn" not in given:
        return [{"turn": name, **held} for name, held in given.items() if isinstance(held, Mapping)]
    return as_list(given)


def _says_nothing(data: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Returns whether there is nothing under these names, not even an unreadable value."""
    return all(map(_is_blank, (data.get(name) for name in names)))


def _is_blank(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_blank, value.values()))
    if isinstance(value, list):
        return all(map(_is_blank, value))
    return value is None or (isinstance(value, str) and not value.strip())


def _text(value: object) -> str:
    return line(value) if isinstance(value, str) else ""
