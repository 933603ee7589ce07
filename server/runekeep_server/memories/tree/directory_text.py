"""Renders the abstract (L0) and the overview (L1) of a directory from the abstracts of its members.

The newest and the most used members take turns, so that both come first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final

from runekeep_schemas.documents.filenames import EXTENSION
from runekeep_schemas.documents.render import ABSTRACT_CHARACTERS, bounded, one_line

OVERVIEW_CHARACTERS: Final = 4000
ITEM_CHARACTERS: Final = 80
"""Maximum characters of one memory in the abstract of a directory."""


@dataclass(frozen=True, slots=True)
class Member:
    """A memory or a directory in a directory. `abstract`: for a directory, the result of `directory_abstract`.
    `updated_at`: time of the last change; `uses`: number of uses; for a directory, the maximum over its content."""

    name: str
    abstract: str
    updated_at: int
    uses: int
    is_directory: bool = False

    @property
    def title(self) -> str:
        return f"{self.name}/" if self.is_directory else self.name.removesuffix(EXTENSION)


def by_rank(members: Iterable[Member]) -> list[Member]:
    """Returns the members, alternating between the newest and the most used. Unused members are ordered only by age."""
    newest = sorted(members, key=lambda one: (-one.updated_at, one.name))
    used = sorted((one for one in newest if one.uses), key=lambda one: -one.uses)
    return list(dict.fromkeys(one for one in chain(*zip_longest(newest, used)) if one is not None))


def directory_abstract(memories: Sequence[Member], count: int, *, more: bool = False) -> str:
    """Returns the abstract (L0) of a directory, at most ABSTRACT_CHARACTERS, from memories below it at any depth; empty
    for none. `count`: number of memories; `more`: there are more than that."""
    if not count:
        return ""
    head = counted(count, "memory", "memories", more=more)
    items, room = list[str](), ABSTRACT_CHARACTERS - len(head) - len(": ")
    for one in by_rank(memories):
        if room < 0:
            break
        items.append(bounded(_said(one).rstrip("."), ITEM_CHARACTERS))
        room -= len(items[-1]) + len("; ")
    return bounded(f"{head}: {'; '.join(items)}", ABSTRACT_CHARACTERS)


def directory_overview(members: Sequence[Member], count: int, *, more: bool = False) -> str:
    """Returns the overview (L1) of a directory, about OVERVIEW_CHARACTERS: a line for each memory and directory in it,
    and the number of those left out. `count`: number of members; `more`: there are more than that."""
    lines, room = list[str](), OVERVIEW_CHARACTERS
    for one in by_rank(members):
        line = f"- {bounded(_said(one), ABSTRACT_CHARACTERS)}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    left = count - len(lines)
    if left > 0:
        lines.append(f"- and {'more than ' if more else ''}{left} more")
    elif more:
        lines.append("- and more")
    return "\n".join(lines)


def counted(number: int, one: str, many: str, *, more: bool = False) -> str:
    return f"{'more than ' if more else ''}{number} {one if number == 1 and not more else many}"


def _said(member: Member) -> str:
    """Returns the name and the abstract, or the abstract alone if it begins with the name."""
    said = one_line(member.abstract)
    # File names separate the fields of the name by `_`.
    if not said or said.startswith((member.title, member.title.replace("_", " "))):
        return said or member.title
    return f"{member.title}: {said}"
