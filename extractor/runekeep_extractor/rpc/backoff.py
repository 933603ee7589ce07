"""Growing waits between attempts, drawn at random so that many workers do not retry at the same time."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Exponential backoff with full jitter: each wait is drawn between 0 and a ceiling that starts at `first` seconds
    and doubles up to `most`.
    """

    first: float
    most: float
    _ceiling: float = field(init=False)

    def __post_init__(self) -> None:
        self._ceiling = self.first

    def next_wait(self) -> float:
        """Returns the seconds to wait before the next attempt."""
        wait = random.uniform(0, self._ceiling)
        self._ceiling = min(self._ceiling * 2, self.most)
        return wait

    def reset(self) -> None:
        """Restarts with short waits, after a success."""
        self._ceiling = self.first
