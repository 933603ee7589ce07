"""Turns the model's dedup decisions into rulings that never lose information.

| candidate | its items | ruling |
|---|---|---|
| skip | none | dropped as a duplicate |
| skip | delete | dropped, nothing is deleted |
| skip | merge | as candidate `none`: merged or created; a merge without a value is ignored; nothing is deleted |
| create | none | created |
| create | delete | created, the items are deleted |
| create | merge, with or without delete | created, no item is touched |
| none | merge, with or without delete | merged into the items, the others deleted |
| none | merge that cannot be carried out, with or without delete | created, no item is touched |
| none | delete | created, the items are deleted |
| none | none | created |
| another word, or no decision | any | created, no item is touched |
| of an add-only type: skip | any | dropped, no item is touched |
| of an add-only type: anything else | any | created, no item is touched |

An item that is not similar to the candidate, or is named twice, is ignored. Between candidates, in their order:

- if two give one field of a memory different values, the first is merged, the other created;
- a memory that is a merge target is not deleted;
- deletes need supporting messages, and stay within the type's `max_deletes`;
- a candidate is dropped only if one of its similar memories stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


class Action(StrEnum):
    """Outcome for a candidate."""

    SKIP = "skip"
    CREATE = "create"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class SaidOfItem:
    """The model's decision about one item. `decision`: a word; `valued`: it comes with values; `mergeable`: the item
    can take them.
    """

    item: str
    decision: str
    mergeable: bool = False
    valued: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """The model's decision about one candidate."""

    decision: str
    items: tuple[SaidOfItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Ruling:
    """Items to merge into and to delete, by id. `ignored`: number of decisions that were not followed."""

    action: Action
    merges: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    ignored: int = 0


MERGE: Final = "merge"
DELETE: Final = "delete"


def rule(said: Said | None, near: Sequence[str], *, only_added: bool) -> Ruling:
    """Returns the ruling by the table above. `near`: ids of the candidate's items."""
    if said is None:
        return Ruling(Action.CREATE, ignored=1)
    named: dict[str, SaidOfItem] = {}
    for one in said.items:
        if one.item in near and one.decision in (MERGE, DELETE):
            named.setdefault(one.item, one)
    ignored = len(said.items) - len(named)
    merges = tuple(one.item for one in named.values() if one.decision == MERGE)
    usable = tuple(one.item for one in named.values() if one.decision == MERGE and one.mergeable)
    deletes = tuple(one.item for one in named.values() if one.decision == DELETE)
    if only_added:
        action = Action.SKIP if said.decision == "skip" else Action.CREATE
        strange = said.decision not in ("skip", "create")
        return Ruling(action, ignored=ignored + len(named) + strange)
    match said.decision:
        case "skip" if usable:
            return Ruling(Action.MERGE, usable, (), ignored + len(named) - len(usable))
        case "skip" if any(one.valued for one in named.values() if one.decision == MERGE):
            return Ruling(Action.CREATE, ignored=ignored + len(named))
        case "skip":
            return Ruling(Action.SKIP, ignored=ignored + len(named))
        case "create" if merges:
            return Ruling(Action.CREATE, ignored=ignored + len(named))
        case "create":
            return Ruling(Action.CREATE, (), deletes, ignored)
        case "none" if usable:
            return Ruling(Action.MERGE, usable, deletes, ignored + len(merges) - len(usable))
        case "none" if deletes and not merges:
            return Ruling(Action.CREATE, (), deletes, ignored)
    return Ruling(Action.CREATE, ignored=ignored + len(named) + 1)


@dataclass(frozen=True, slots=True)
class Case:
    """A candidate with the ruling about it alone.

    `values`: for each item to merge into, the fields with a whole value, as comparable text. `evidence`: whether its
    source messages are known. `memory_type`: the key for the limit on deletes.
    """

    id: str
    near: tuple[str, ...]
    ruling: Ruling
    memory_type: str
    evidence: bool
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def settle(cases: Sequence[Case], room: Mapping[str, int]) -> dict[str, Ruling]:
    """Returns the rulings after resolving conflicts between candidates. `room`: deletes left, by memory type."""
    ruled = _merges_settled(cases)
    ruled = _deletes_settled(cases, ruled, room)
    deleted = {item for ruling in ruled.values() for item in ruling.deletes}
    for case in cases:
        ruling = ruled[case.id]
        # Candidates come after their similar candidates, whose fate is therefore known.
        if ruling.action is Action.SKIP and all(item in deleted for item in case.near):
            ruled[case.id] = Ruling(Action.CREATE, ignored=ruling.ignored + 1)
    return ruled


def _merges_settled(cases: Sequence[Case]) -> dict[str, Ruling]:
    """Each field of a memory takes one value, and a candidate that is itself merged or dropped takes none."""
    given: dict[str, dict[str, str]] = {}
    ruled: dict[str, Ruling] = {}
    for case in cases:
        ruling = case.ruling
        if ruling.action is Action.MERGE:
            gone = any(item in ruled and ruled[item].action is not Action.CREATE for item in ruling.merges)
            clash = any(
                given.get(item, {}).get(name, value) != value
                for item in ruling.merges
                for name, value in case.values.get(item, {}).items()
            )
            if gone or clash:
                count = len(ruling.merges) + len(ruling.deletes)
                ruling = Ruling(Action.CREATE, ignored=ruling.ignored + count)
        ruled[case.id] = ruling
        for item in ruling.merges:
            given.setdefault(item, {}).update(case.values.get(item, {}))
    return ruled


def _deletes_settled(cases: Sequence[Case], ruled: Mapping[str, Ruling], room: Mapping[str, int]) -> dict[str, Ruling]:
    merged_into = {item for ruling in ruled.values() for item in ruling.merges}
    left = dict(room)
    deleted: set[str] = set()
    settled: dict[str, Ruling] = {}
    for case in cases:
        ruling = ruled[case.id]
        allowed: list[str] = []
        already = 0
        for item in ruling.deletes:
            candidate = ruled.get(item)
            if item in merged_into or (candidate and candidate.action is not Action.CREATE):
                continue
            if item in deleted:
                already += 1
                continue
            # A candidate is not stored yet: leaving it out deletes nothing.
            if candidate is None:
                if not case.evidence or left.get(case.memory_type, 0) <= 0:
                    continue
                left[case.memory_type] -= 1
            deleted.add(item)
            allowed.append(item)
        ignored = ruling.ignored + len(ruling.deletes) - len(allowed) - already
        settled[case.id] = replace(ruling, deletes=tuple(allowed), ignored=ignored)
    return settled
