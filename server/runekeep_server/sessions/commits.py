"""Wakes workers after a commit, and logs why automatic commits were refused."""

import time
from collections.abc import Callable

import structlog

from runekeep_common import failpoints
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.settings import Settings
from runekeep_storage.database import Space
from runekeep_storage.sessions.commits import CommitRules, Refusal

MIN_LOG_INTERVAL_SECONDS = 60.0
"""Time between two log lines about refusals for the same user and reason."""
log = structlog.get_logger(__name__)


class Commits:
    """The rules of this server's commits. Call `durable` after a transaction that created a commit. It calls
    `committed`, which wakes workers."""

    def __init__(self, registry: Registry, settings: Settings, committed: Callable[[], None]) -> None:
        self.rules = CommitRules(registry, settings.session_skills, settings.max_open_commits_per_user)
        self._committed = committed
        self._logged_at: dict[tuple[Space, type[Refusal]], float] = {}
        """Time of the last log line, oldest first."""

    def log_refusal(self, space: Space, session_id: str, reason: Refusal) -> None:
        """Logs why an automatic commit was refused, about once a minute for each user and reason. Otherwise each
        message of the user would be a log line."""
        now = time.monotonic()
        while self._logged_at and next(iter(self._logged_at.values())) <= now - MIN_LOG_INTERVAL_SECONDS:
            del self._logged_at[next(iter(self._logged_at))]
        if (space, type(reason)) not in self._logged_at:
            self._logged_at[space, type(reason)] = now
            where = {"account": space.account, "user": space.user, "session": session_id}
            log.warning("auto_commit_refused", reason=str(reason), **where)

    def durable(self) -> None:
        failpoints.reached(failpoints.COMMIT_AFTER_COMMIT)
        self._committed()
