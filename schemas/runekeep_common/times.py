"""Units of time in microseconds, the unit of every stored time."""

from typing import Final

DAY_US: Final = 86_400_000_000
