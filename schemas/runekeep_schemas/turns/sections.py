"""Sections of an agent's prompt: blocks of rows under constant headers.

Headers, order and rows are those of `design/turn-memory.md`. Rows stay in the order given.
`runekeep_schemas.turns.window` decides what each audience is shown, except for assistant signals, which only the final
answer's blocks contain. Times are microseconds since 1970 (UTC).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep_schemas.turns.feedback import Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint, Promotion
from runekeep_schemas.turns.text import (
    age,
    human_time,
    key_text,
    line,
    second_time,
    signal_text,
    strength,
    unbarred,
    value_text,
)
from runekeep_schemas.turns.window import FEEDBACK_SHOWN, Audience

CURRENT_TURN: Final = "[CURRENT TURN]"
PRIOR_TURNS: Final = "[PRIOR TURNS (newest->oldest) - COMPRESSED VIEWS]"
CANDIDATES: Final = "[TURNS CANDIDATES TABLE]"
FEEDBACK: Final = "[USER FEEDBACK — CHRONOLOGICAL (newest->oldest; scope=conversation)]"
MEMORIES: Final = "[TURN MEMORIES — CHRONOLOGICAL (newest->oldest; scope=conversation)]"
SELECTED_MEMORIES: Final = "[TURN MEMORIES — CHRONOLOGICAL (selected; scope=conversation)]"
UNSELECTED_MEMORIES: Final = "[TURN MEMORIES — CHRONOLOGICAL (scope=conversation)]"
"""Header of the final answer while no selection is stored: nothing is filtered, so "selected" would be wrong."""
FINAL_FEEDBACK: Final = "[USER FEEDBACK — CHRONOLOGICAL (scope=conversation)]"
SIGNALS: Final = "[ASSISTANT SIGNALS — CHRONOLOGICAL (scope=user_cross_conversation)]"

MAX_ITEMS: Final = 6
MAX_TOPICS: Final = 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A turn with its compressed view, and the reason for its inclusion. `queries`: the context queries
    that found it.
    """

    turn_id: str
    started_at: int
    view: str
    objective: str = ""
    recent: bool = False
    selected: bool = False
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """A turn's fingerprint, and when the turn began."""

    fingerprint: Fingerprint
    started_at: int


@dataclass(frozen=True, slots=True)
class TargetedReaction:
    """A reaction and the objective of the turn that it is about."""

    reaction: Reaction
    objective: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """The input of an agent's sections. `current`: None while nothing is known of the turn; `selected`: whether a
    selection is stored.
    """

    current_turn_id: str
    current: Candidate | None = None
    candidates: Sequence[Candidate] = ()
    feedback: Sequence[TargetedReaction] = ()
    memories: Sequence[Memory] = ()
    promotions: Sequence[Promotion] = ()
    selected: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """`text`: the header and the rows, one per line."""

    header: str
    text: str


def sections(audience: Audience, shown: Shown, now: int) -> list[Section]:
    """Returns the blocks for an audience in order. Blocks without rows are omitted, except PRIOR TURNS."""
    memories = [_memory_row(one, shown.current_turn_id) for one in shown.memories]
    feedback = [row for one in shown.feedback[:FEEDBACK_SHOWN] for row in _feedback_rows(one, now)]
    if audience is Audience.FINAL_ANSWER:
        promotions = [_promotion_rows(one, now) for one in shown.promotions if one.signals]
        header = SELECTED_MEMORIES if shown.selected else UNSELECTED_MEMORIES
        blocks = [(header, memories), (FINAL_FEEDBACK, feedback), (SIGNALS, promotions)]
    else:
        blocks = [
            (CURRENT_TURN, [_view_row(shown.current)] if shown.current else []),
            (PRIOR_TURNS, [_view_row(one) for one in shown.candidates]),
            (CANDIDATES, [_candidate_row(one) for one in shown.candidates]),
            (FEEDBACK, feedback),
            (MEMORIES, memories),
        ]
    return [Section(header, "\n".join((header, *rows))) for header, rows in blocks if rows or header == PRIOR_TURNS]


def joined(blocks: Iterable[Section]) -> str:
    """Returns all blocks, separated by one blank line."""
    return "\n\n".join(block.text for block in blocks)


def _view_row(turn: Candidate) -> str:
    parts = (f"[TURN turn_id={line(turn.turn_id)}]", human_time(turn.started_at), line(turn.view))
    return " / ".join(part for part in parts if part)


def _candidate_row(turn: Candidate) -> str:
    reasons: list[str] = []
    if turn.recent:
        reasons.append("recent_turn")
    if turn.selected:
        reasons.append("selected_turn")
    if turn.queries:
        reasons.append("context_hit: " + " | ".join(map(_query, turn.queries)))
    parts = [f"- {line(turn.turn_id)} ({human_time(turn.started_at)})", "; ".join(reasons)]
    if objective := unbarred(turn.objective):
        parts.append(f"objective: {objective}")
    return " | ".join(part for part in parts if part)


def _query(query: str) -> str:
    """Returns a query without the separator of reasons, and without a prefix that imitates the next field."""
    text = unbarred(query).replace(";", ",")
    return text.replace(":", "", 1) if text.startswith("objective:") else text


def _memory_row(memory: Memory, current_turn_id: str) -> str:
    said = memory.fingerprint
    current = " (current turn)" if said.turn_id == current_turn_id else ""
    objective = line(said.objective).replace(";", ",")
    return (
        f"- {line(said.turn_id)}{current} ({human_time(memory.started_at)}) objective={objective}; "
        f"A={_quoted(map(signal_text, said.assertions[:MAX_ITEMS]))}; "
        f"E={_quoted(map(signal_text, said.exceptions[:MAX_ITEMS]))}; "
        f"F={_quoted(map(signal_text, said.facts[:MAX_ITEMS]))}; "
        f"topics={_quoted(map(line, said.topics[:MAX_TOPICS]))}"
    )


def _quoted(items: Iterable[str]) -> str:
    """Returns `['a', 'b']`. An apostrophe inside an item becomes a typographic one, so that it cannot end the item."""
    return "[" + ", ".join(["'" + item.replace("'", "’") + "'" for item in items]) + "]"


def _feedback_rows(one: TargetedReaction, now: int) -> list[str]:
    said = one.reaction
    rows = [
        f"- turn_id={line(said.turn_id)} | {second_time(said.created_at)} | time_since={age(said.created_at, now)}"
        f" | origin={said.origin} | reaction={said.reaction}"
    ]
    if objective := line(one.objective):
        rows.append(f"  - objective: {objective}")
    if text := line(said.text):
        rows.append(f"  - text: {text}")
    return rows


def _promotion_rows(one: Promotion, now: int) -> str:
    rows = [f"\n  - signal: {key_text(each)} = {value_text(each.value)} ({strength(each)})" for each in one.signals]
    first = f"- turn_id={line(one.turn_id)} | {second_time(one.made_at)} | time_since={age(one.made_at, now)}"
    return first + "".join(rows)
