"""Runs rules so that a rule that raises loses only its own part of the conversation, never the commit.

Every rule of the offline engine runs through a `RuleGuard`. Input that a rule cannot handle is left out, logged under
the rule's name, and counted in the result of the commit.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from runekeep_extractor import telemetry
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.rpc.calls import LeaseLost

T = TypeVar("T")
D = TypeVar("D")

_NOT_OF_RULES: Final = (JobFailed, LeaseLost)
"""These errors end the attempt: they concern the server or the lease, not a rule."""

_log = structlog.get_logger(__name__)


class RuleGuard:
    """Guards the rules of one job. `skipped` counts by name how often a rule raised."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()

    def run(self, rule: str, work: Callable[[], T], default: D) -> T | D:
        """Returns what `work` returns, or `default` if it raises. Raises JobFailed and LeaseLost."""
        try:
            return work()
        except _NOT_OF_RULES:
            raise
        except Exception as error:
            self._skip(rule, error)
            return default

    async def wait(self, rule: str, work: Awaitable[T], default: D) -> T | D:
        """As `run`, for a rule that calls the server."""
        try:
            return await work
        except _NOT_OF_RULES:
            raise
        except Exception as error:
            self._skip(rule, error)
            return default

    def _skip(self, rule: str, error: Exception) -> None:
        self.skipped[rule] += 1
        telemetry.SKIPPED_RULES.labels(rule).inc()
        # Without the text of the exception: it may quote the conversation.
        _log.error("rule_skipped", rule=rule, error=type(error).__name__, at=telemetry.place_of(error))


class _Unguarded(RuleGuard):
    def run(self, rule: str, work: Callable[[], T], default: D) -> T | D:
        return work()


UNGUARDED: Final = _Unguarded()
"""Lets rules raise: for rules that run inside another rule, and for tests of a single rule."""
