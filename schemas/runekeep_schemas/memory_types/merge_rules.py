"""The merge rules. A merge rule states how a new value changes a field. The server, the engines, the type files and the
prompts read them here.

| merge_op | a value | blocks | a number to add |
|---|---|---|---|
| patch | replaces, unless it is empty | edit the text | refused |
| replace | replaces, unless it is empty | refused | refused |
| sum | is added | refused | is added |
| avg | refused: a derived value is never stored | refused | refused |
| immutable | sets an empty field; another value is refused | refused | refused |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import add
from typing import Any, Final


class MergeOp(StrEnum):
    """The name of a merge rule. The contract's enum has the same names."""

    PATCH = "patch"
    REPLACE = "replace"
    SUM = "sum"
    AVG = "avg"
    IMMUTABLE = "immutable"


@dataclass(frozen=True, slots=True)
class MergeRule:
    """States how a new value changes a field.

    `combine`: returns the result of the present and the given value; None if the given value replaces the present one.
    The order in which several values are given must not change the result. The present value of a number is 0 at first.
    `adds`: given values are added to the present one. `numbers_only`: only fields with numbers may have the rule.
    `takes_blocks`: SEARCH/REPLACE blocks edit the text. `keeps_first`: only an empty field takes a value. `mark`: the
    sign after the names of such fields in prompts. `hint`: a sentence that explains the mark to a model, for edits.
    """

    combine: Callable[[Any, Any], Any] | None = None
    adds: bool = False
    numbers_only: bool = False
    takes_blocks: bool = False
    keeps_first: bool = False
    mark: str = ""
    hint: str = ""

    @property
    def replaces(self) -> bool:
        """Returns whether a given value replaces the present one."""
        return self.combine is None and not self.keeps_first


MERGE_RULES: Final[Mapping[MergeOp, MergeRule]] = {
    MergeOp.PATCH: MergeRule(takes_blocks=True),
    MergeOp.REPLACE: MergeRule(mark="=", hint="`=`, `+` and `*` fields take no blocks."),
    MergeOp.SUM: MergeRule(combine=add, adds=True, numbers_only=True, mark="+"),
    MergeOp.IMMUTABLE: MergeRule(keeps_first=True, mark="*"),
}
"""The rules of fields. AVG has none: it belongs to derived values, which are never stored."""
