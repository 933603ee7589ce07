"""Records damage that this server found in its database."""

import time
from dataclasses import dataclass

import structlog

from runekeep_storage import telemetry
from runekeep_storage.errors import DatabaseDamaged

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """A damage report. `at` is in seconds since 1970. `problem` quotes no row."""

    at: float
    problem: str


class Damage:
    """Tells whether the database is known to be damaged. A finding stays until the process ends: only a backup repairs
    damage."""

    def __init__(self) -> None:
        self.finding: Finding | None = None

    def note(self, found_by: str, problem: str) -> None:
        """Stores and logs the first finding; ignores later ones."""
        telemetry.DATABASE_DAMAGED.set(1)
        if self.finding is None:
            self.finding = Finding(time.time(), problem)
            log.error("database_damaged", found_by=found_by, problem=problem, writes="refused")

    def check(self) -> None:
        """Raises DatabaseDamaged if damage is known."""
        if self.finding is not None:
            raise DatabaseDamaged
