"""What the checkers of this suite report."""

from dataclasses import dataclass
from enum import StrEnum

from tests.crash.history import Space


class Wrong(StrEnum):
    """What a violation is."""

    LOST = "lost"
    DOUBLED = "doubled"
    DISORDER = "out of order"
    HALF_SEEN = "half seen"
    WENT_BACK = "went back in time"
    FOREIGN = "of nobody's commit"
    LEAKED = "of another user"
    DAMAGED = "not what was sent"
    NOT_COMPLETED = "accepted and not completed"
    LEFT_OVER = "left over"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be. `detail` holds ids and numbers only."""

    wrong: Wrong
    space: Space | None
    detail: str

    def __str__(self) -> str:
        where = f"{self.space.account}/{self.space.user}: " if self.space else ""
        return f"{self.wrong}: {where}{self.detail}"
