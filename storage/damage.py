"""Remembers damage that a server has found in its database."""

import time
from dataclasses import dataclass

import structlog

from storage import telemetry
from storage.errors import DatabaseDamaged

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """`at` in seconds since 1970. `problem` quotes no row."""

    at: float
    problem: str


class Damage:
    """Whether the database is known to be damaged. This stays so until the process ends: only a backup repairs it."""

    def __init__(self) -> None:
        self.finding: Finding | None = None

    def note(self, found_by: str, problem: str) -> None:
        """Keeps and logs the first finding only."""
        telemetry.DATABASE_DAMAGED.set(1)
        if self.finding is None:
            self.finding = Finding(time.time(), problem)
            log.error("database_damaged", found_by=found_by, problem=problem, writes="refused")

    def check(self) -> None:
        """Raises DatabaseDamaged if damage is known."""
        if self.finding is not None:
            raise DatabaseDamaged
