"""Selects the turns that an agent is shown: the last turns, search hits, the delta window, or a stored selection.

The rules are those of `design/turn-memory.md`. A place is the id of a turn and the sequence of its first message, which
orders the turns of a session without ties.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from runekeep_schemas.turns.selection import Selection

LAST_TURNS: Final = 3
MAX_LAST: Final = 20
DELTA: Final = 256
"""Maximum fingerprints of the delta window that are counted."""
DELTA_SHOWN: Final = 25
DAYS: Final = 365
"""Older fingerprints are neither in the delta window nor among assistant signals."""
MAX_SIGNAL_TURNS: Final = 512
SELECTED_TURNS: Final = 8
"""Maximum prior turns of a selection that DOWNSTREAM is shown: the first ones of its `turn_ids`."""
FEEDBACK_SHOWN: Final = 100

Place: TypeAlias = tuple[str, int]


class Audience(StrEnum):
    """The agent that a context is for."""

    GATE = "gate"
    RECONCILER = "reconciler"
    DOWNSTREAM = "downstream"
    FINAL_ANSWER = "final_answer"

    @property
    def is_filtered(self) -> bool:
        """Whether a stored selection determines what it is shown."""
        return self in (Audience.DOWNSTREAM, Audience.FINAL_ANSWER)


def chosen(audience: Audience, current_turn_id: str, selection: Selection | None) -> tuple[str, ...] | None:
    """Returns the turns whose memories a selection shows to an audience. They are loaded by id, because they may lie
    before any window.

    These are `local_memories_turn_ids` and the current turn. `turn_ids` selects prior turns, never a turn memory. None
    means that nothing is filtered, because no selection is stored or because the audience itself selects.
    """
    if selection is None or not audience.is_filtered:
        return None
    return tuple(dict.fromkeys((*selection.local_memories_turn_ids, current_turn_id)))


def chosen_turns(audience: Audience, selection: Selection | None) -> tuple[str, ...]:
    """Returns the ids of selected prior turns to load for an audience. Only DOWNSTREAM is shown any."""
    return selection.turn_ids[:SELECTED_TURNS] if selection is not None and audience is Audience.DOWNSTREAM else ()


def loaded(
    audience: Audience,
    current: Place,
    last: Iterable[Place],
    hits: Iterable[Place],
    delta: Iterable[Place],
    selection: Selection | None,
    selected: Iterable[Place] = (),
) -> list[str]:
    """Returns the turns whose memories are shown, newest turn first.

    `last`: the requested number of turns before the current one. `hits`: found by context queries. `delta`: turns whose
    fingerprints changed since the selection, of which the newest DELTA_SHOWN count. `selected`: those of `chosen` that
    exist. A turn without a fingerprint is skipped later, not here.
    """
    ids = chosen(audience, current[0], selection)
    if ids is not None:
        wanted = frozenset(ids)
        return _newest_first(place for place in (current, *last, *hits, *delta, *selected) if place[0] in wanted)
    return _newest_first((current, *last, *hits, *newest(delta, DELTA_SHOWN)))


def candidates(
    audience: Audience,
    last: Iterable[Place],
    hits: Iterable[Place],
    selection: Selection | None,
    selected: Iterable[Place] = (),
) -> list[str]:
    """Returns the earlier turns that are offered with their views, newest turn first.

    DOWNSTREAM also gets those of `chosen_turns` that are among `selected`; FINAL_ANSWER gets none.
    """
    if audience is Audience.FINAL_ANSWER:
        return []
    turn_ids = chosen_turns(audience, selection)
    return _newest_first((*last, *hits, *(place for place in selected if place[0] in turn_ids)))


def newest(places: Iterable[Place], most: int) -> Sequence[Place]:
    """Returns the newest places in turn order, newest first."""
    return sorted(set(places), key=lambda place: place[1], reverse=True)[:most]


def _newest_first(places: Iterable[Place]) -> list[str]:
    return [turn_id for turn_id, _ in sorted(set(places), key=lambda place: place[1], reverse=True)]
