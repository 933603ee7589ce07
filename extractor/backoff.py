"""Waits between attempts that grow, each drawn at random so that many workers do not come back as one."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Exponential backoff with full jitter: each wait lies between 0 and `first` seconds doubled, at most `most`."""

    first: float
    most: float
    _ceiling: float = field(init=False)

    def __post_init__(self) -> None:
        self._ceiling = self.first

    def next_wait(self) -> float:
        """Seconds to wait before the next attempt."""
        wait = random.uniform(0, self._ceiling)
        self._ceiling = min(self._ceiling * 2, self.most)
        return wait

    def reset(self) -> None:
        """After a success: begin with short waits again."""
        self._ceiling = self.first
