"""Commits of sessions in which nothing was said for so long as they allow.

When one is due stands in its row (`storage.auto_commits`). Every server looks there; of several the first one makes the
commit, the others find it made. A server that is killed leaves nothing behind but rows that are still due.
"""

import asyncio
from collections.abc import Sequence

import structlog

from schemas.auto_commit import SECOND
from schemas.telemetry import tracing
from server.commits import Commits, Made, Refused
from server.identity import new_trace
from storage import auto_commits
from storage.auto_commits import Idle
from storage.database import Database, Space, Tx
from storage.errors import BacklogFull, SpaceShut, StoreUnavailable

SLICE = 100
"""Sessions that are read at once; each is committed in a transaction of its own."""
ACCOUNTS_AT_ONCE = 4
"""Whose sessions are committed side by side; those of one account wait for each other in the store."""
PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 600.0
"""How long a session waits whose commit could not be made, as when its user has too many open ones: the first at the
beginning, later as long as it has been due, up to the second."""
log = structlog.get_logger(__name__)


class IdleCommits:
    """A background task a server. `start`, and `close` in the end."""

    def __init__(self, database: Database, commits: Commits, poll_seconds: float) -> None:
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
        """Commits the sessions that are due; seconds until the next look. Raises StoreUnavailable."""
        found, wait = await self._database.read(_due_and_next, None)
        while found:
            await self._commit_all(found)
            found, wait = await self._database.read(_due_and_next, found[-1])
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
        """Whether it is any use to go on with others of its user."""
        where = {"account": idle.space.account, "user": idle.space.user, "session": idle.session_id}
        try:
            # In no call: each begins a trace of its own.
            with tracing.span("auto commit", attributes={"runekeep.account": idle.space.account}) as span:
                trace = span.traceparent or new_trace().traceparent
                done = await self._database.write(self._commit_if_due, idle.space, idle.session_id, trace)
        except SpaceShut:
            # Its user is being deleted, and its sessions go first.
            return False
        except StoreUnavailable:
            raise
        except Exception:
            # One session must keep no other one waiting, nor fill the log.
            log.exception("auto_commit_failed", **where)
            await self._database.write(_put_off_long, idle.space, idle.session_id)
            return True
        if isinstance(done, Made):
            log.info("auto_commit", task=done.answer.task_id, **where)
            self._commits.durable()
        elif done is not None:
            self._commits.tell_refused(idle.space, idle.session_id, done)
        return not isinstance(done, BacklogFull)

    async def _commit_if_due(self, tx: Tx, space: Space, session_id: str, traceparent: str) -> Made | Refused | None:
        """None when there is nothing to do any more."""
        since = await auto_commits.due_since(tx, space, session_id)
        if since is None:
            return None
        # Nobody may ever write here again: messages that stayed live would never be extracted.
        done = await self._commits.make_by_itself(tx, space, session_id, traceparent=traceparent, keep_recent=0)
        if done is None:
            # Without this it would be due for ever.
            await auto_commits.put_off(tx, space, session_id, 0)
        elif isinstance(done, BacklogFull):
            # So are all others of its user, in one statement however many they are.
            await auto_commits.put_off_user(tx, space, _again_at(tx, since))
        elif not isinstance(done, Made):
            await auto_commits.put_off(tx, space, session_id, _again_at(tx, since))
        return done

    async def _forever(self) -> None:
        waits = 0
        while True:
            wait = self._poll_seconds
            try:
                wait = await self.look()
                waits = 0
            except StoreUnavailable as error:
                waits += 1
                # Like the dispatcher's loops.
                if waits.bit_count() == 1:
                    log.warning("loop_waits", loop="auto_commit", error=str(error))
            except Exception:
                # Without it no idle session would be committed again.
                log.exception("loop_failed", loop="auto_commit")
            await asyncio.sleep(wait)


async def _due_and_next(tx: Tx, after: Idle | None) -> tuple[Sequence[Idle], int | None]:
    return await auto_commits.due(tx, after, SLICE), await auto_commits.next_in(tx)


def _again_at(tx: Tx, since: int) -> int:
    """When what has been due since then is tried again."""
    return tx.now() + min(max(tx.now() - since, round(PAUSE_SECONDS * SECOND)), round(LONGEST_PAUSE_SECONDS * SECOND))


async def _put_off_long(tx: Tx, space: Space, session_id: str) -> None:
    await auto_commits.put_off(tx, space, session_id, tx.now() + round(LONGEST_PAUSE_SECONDS * SECOND))
