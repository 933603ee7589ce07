"""Commits sessions that have been idle for as long as their rules allow.

The due time is in the session's row (`runekeep_storage.sessions.idle_commits`). Every server looks for due sessions;
the first makes the commit, the others find it done. A killed server leaves only rows that are still due.
"""

import asyncio
from collections.abc import Sequence

import structlog

from runekeep_common.telemetry import tracing
from runekeep_schemas.auto_commit_rules import SECOND
from runekeep_server.identity import new_trace
from runekeep_server.sessions.commits import Commits
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.errors import BacklogFull, SpaceShut, StoreUnavailable
from runekeep_storage.sessions import idle_commits
from runekeep_storage.sessions.commits import Commit
from runekeep_storage.sessions.idle_commits import Idle

SLICE = 100
"""Sessions of one read; each is committed in its own transaction."""
ACCOUNTS_AT_ONCE = 4
"""Accounts whose sessions are committed concurrently. Sessions of one account wait for each other in the store
anyway."""
log = structlog.get_logger(__name__)


class IdleCommits:
    """The background task; one per server. Call `start`, and `close` at the end."""

    def __init__(self, database: SpaceDatabase, commits: Commits, poll_seconds: float) -> None:
        self._database = database
        self._commits = commits
        self._poll_seconds = poll_seconds
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._forever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def look(self) -> float:
        """Commits the due sessions. Returns the seconds until the next look. Raises StoreUnavailable."""
        found, wait = await self._database.read_global(_due_and_next, None)
        while found:
            await self._commit_all(found)
            found, wait = await self._database.read_global(_due_and_next, found[-1])
        return self._poll_seconds if wait is None else min(self._poll_seconds, wait / SECOND)

    async def _commit_all(self, found: Sequence[Idle]) -> None:
        of_accounts: dict[str, list[Idle]] = {}
        for idle in found:
            of_accounts.setdefault(idle.space.account, []).append(idle)
        places = asyncio.Semaphore(ACCOUNTS_AT_ONCE)

        async def of_account(some: Sequence[Idle]) -> None:
            async with places:
                waiting: set[Space] = set()
                for idle in some:
                    if idle.space not in waiting and not await self._commit(idle):
                        waiting.add(idle.space)

        ended = await asyncio.gather(*map(of_account, of_accounts.values()), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _commit(self, idle: Idle) -> bool:
        """Commits one session if it is due. Returns False if other sessions of its user would fail too."""
        where = {"account": idle.space.account, "user": idle.space.user, "session": idle.session_id}
        try:
            # Not part of a call, so each commit begins its own trace.
            with tracing.span("auto commit", attributes={"runekeep.account": idle.space.account}) as span:
                trace = span.traceparent or new_trace().traceparent
                done = await self._database.write(
                    idle_commits.commit_if_due, idle.space, idle.session_id, self._commits.rules, trace
                )
        except SpaceShut:
            # The user is being deleted, sessions first.
            return False
        except StoreUnavailable:
            raise
        except Exception:
            # One session must not block the others, nor fill the log.
            log.exception("auto_commit_failed", **where)
            await self._database.write(idle_commits.put_off_long, idle.space, idle.session_id)
            return True
        if isinstance(done, Commit):
            log.info("auto_commit", task=done.task_id, **where)
            self._commits.durable()
        elif done is not None:
            self._commits.log_refusal(idle.space, idle.session_id, done)
        return not isinstance(done, BacklogFull)

    async def _forever(self) -> None:
        waits = 0
        while True:
            wait = self._poll_seconds
            try:
                wait = await self.look()
                waits = 0
            except StoreUnavailable as error:
                waits += 1
                # Logged ever more rarely, as in the dispatcher's loops.
                if waits.bit_count() == 1:
                    log.warning("loop_waits", loop="auto_commit", error=str(error))
            except Exception:
                # Without this loop no idle session would be committed again.
                log.exception("loop_failed", loop="auto_commit")
            await asyncio.sleep(wait)


async def _due_and_next(tx: Tx, after: Idle | None) -> tuple[Sequence[Idle], int | None]:
    return await idle_commits.due(tx, after, SLICE), await idle_commits.next_in(tx)
