"""Renders the stable part of Recall: who the user is, standing preferences, and open plans.

It depends on the memories alone, not on a query, so its bytes stay the same until a commit changes one of them, and an
agent's prompt cache holds.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from runekeep_schemas.documents.merge import is_blank
from runekeep_schemas.documents.uris import memories_root
from runekeep_schemas.memory_types.plans import PLANS
from runekeep_schemas.recall_lines import name, split_lines
from runekeep_schemas.recall_tokens import UNITS, weigh
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories import recall_text
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import memories
from runekeep_storage.memories.open_plans import OpenPlan, open_plans
from runekeep_storage.records import Listed

BUDGET: Final = 500
_HEADING: Final = "## The user\n"
_MIN_ENTRY: Final = weigh("- :") + weigh(recall_text.QUOTE)
"""Every entry weighs more."""
_PROFILE, _PREFERENCES = "profile", "preferences"
_MAX_LISTED: Final = 500
"""Maximum preferences, and maximum plans, that are read."""


async def read(tx: Tx, space: Space, registry: Registry, budget: int) -> str:
    """Returns the stable part in at most `budget` tokens: the lines of the profile, then the abstract of each
    preference, by URI, then those of open plans, by due date. Text without room is left out."""
    root = memories_root(space.user)
    profile_uri = f"{root}/{_PROFILE}.md"
    _, _, profile = (await memories.files(tx, space, [profile_uri])).get(profile_uri, ("", "", ""))
    if _PROFILE in registry and is_blank(registry[_PROFILE], profile):
        profile = ""
    preferences = await memories.listing(tx, space, f"{root}/{_PREFERENCES}", limit=_MAX_LISTED)
    plans = await open_plans(tx, space, f"{root}/{PLANS}/", _MAX_LISTED)
    entries = chain([(_PROFILE, split_lines([profile]))], map(_preference, preferences), map(_plan, plans))
    return "".join(_within(entries, UNITS * budget)).rstrip("\n")


def _preference(preference: Listed) -> tuple[str, list[str]]:
    return name(preference.uri), _lines(preference.abstract)


def _plan(plan: OpenPlan) -> tuple[str, list[str]]:
    day = " ".join(str(json.loads(plan.fields).get("due") or "").split())
    return f"{name(plan.uri)} (open{', due ' + day if day else ''})", _lines(plan.abstract)


def _lines(abstract: str) -> list[str]:
    return split_lines([" ".join(abstract.split())])


def _within(entries: Iterable[tuple[str, list[str]]], room: int) -> Iterator[str]:
    room -= weigh(_HEADING)
    heading = _HEADING
    for subject, lines in entries:
        if room < _MIN_ENTRY:
            return
        head = f"- {subject}"
        left, shown = room - weigh(f"{head}:"), []
        for line in lines:
            cost = weigh(f"{recall_text.QUOTE} {line}\n")
            if cost <= left:
                left -= cost
                shown.append(line)
        if shown:
            room = left
            yield heading + recall_text.entry(head, shown)
            heading = ""
