"""How long a model that failed is left alone."""

import random
from time import monotonic

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
"""Time between two attempts to reach a model that is away: it doubles, unless the model asks for more."""


class Outage:
    """The failures since the last success. `problem`: the last one."""

    def __init__(self) -> None:
        self.failures = 0
        self.problem = ""
        self._until = 0.0
        """On the clock `monotonic`."""

    @property
    def is_paused(self) -> bool:
        """Whether the model is to be left alone for now."""
        return self.pause_left > 0

    @property
    def pause_left(self) -> float:
        """How long the model is to be left alone, in seconds; 0 if it is not."""
        return max(self._until - monotonic(), 0.0)

    def add(self, error: Exception, retry_after: float = 0.0) -> bool:
        """Records a failure, and begins a pause of at least `retry_after` seconds. Returns whether to log it: the first
        failure, then ever fewer, because an outage may last for hours."""
        if self.is_paused:
            # Another request has failed just now, in the same outage.
            self._until = max(self._until, monotonic() + retry_after)
            return False
        self.problem = str(error)
        self.failures += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(self.failures - 1, 10), MAX_PAUSE_SECONDS)
        # Several servers should not come back at the same moment.
        self._until = monotonic() + max(pause * random.uniform(0.5, 1.0), retry_after)
        return self.failures.bit_count() == 1

    def end(self) -> int:
        """Returns the number of failures before this success."""
        failures, self.failures = self.failures, 0
        return failures
