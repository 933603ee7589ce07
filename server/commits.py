"""Commits, phase 1, made alike by CommitSession, by an append that reaches a bound and for a session that is idle."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import structlog

from runekeep.v1 import session_service_pb2 as pb
from schemas import failpoints, policy
from schemas.policy import MemoryPolicy, UnknownTypeError
from schemas.registry import Registry
from schemas.uris import archive_uri
from server.settings import Settings
from storage import archives
from storage.archives import Batch
from storage.database import Space, Tx
from storage.errors import BacklogFull

Refused = BacklogFull | UnknownTypeError
"""Why no commit was made by itself: too many are open, or the session's policy names a type that is no more."""
TOLD_EVERY_SECONDS = 60.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """A commit that came about by itself, as CommitSession would tell it; `live`: how many messages stay live."""

    answer: pb.CommitSessionResponse
    live: int


class Commits:
    """`durable` is to be called once a transaction with a commit in it is through, so that a worker hears of it."""

    def __init__(self, registry: Registry, settings: Settings, committed: Callable[[], None]) -> None:
        self._registry = registry
        self._settings = settings
        self._committed = committed
        self._told: dict[tuple[Space, type[Refused]], float] = {}
        """When it was said last, oldest first."""

    async def make(
        self,
        tx: Tx,
        space: Space,
        session_id: str,
        *,
        keep_recent: int,
        traceparent: str,
        own_policy: MemoryPolicy | None = None,
        priority: int = 0,
    ) -> pb.CommitSessionResponse:
        """Archives all live messages but the newest `keep_recent`, and queues their extraction; SKIPPED for none that
        say anything.

        Nothing is written before it raises BacklogFull, UnknownTypeError or NotFound.
        """
        batch = await archives.to_archive(tx, space, session_id, keep_recent)
        if batch is None:
            return pb.CommitSessionResponse(status=pb.COMMIT_STATUS_SKIPPED)
        await self._check_backlog(tx, space)
        return await self._archived(tx, space, batch, traceparent, own_policy, priority)

    async def make_by_itself(
        self, tx: Tx, space: Space, session_id: str, *, traceparent: str, keep_recent: int | None = None
    ) -> Made | Refused | None:
        """As `make`, under the session's own rules, but for `keep_recent` where it is given; None where there is
        nothing to archive. What stands against it is answered: an append goes on all the same, and an idle session is
        tried again."""
        try:
            # First of all: while the backlog is full every message asks, and the live ones grow many.
            await self._check_backlog(tx, space)
            batch = await archives.to_archive(tx, space, session_id, keep_recent)
            if batch is None:
                return None
            return Made(await self._archived(tx, space, batch, traceparent), batch.stay)
        except (BacklogFull, UnknownTypeError) as error:
            return error

    async def _check_backlog(self, tx: Tx, space: Space) -> None:
        await archives.check_backlog(tx, space, self._settings.max_open_commits_per_user)

    async def _archived(
        self,
        tx: Tx,
        space: Space,
        batch: Batch,
        traceparent: str,
        own_policy: MemoryPolicy | None = None,
        priority: int = 0,
    ) -> pb.CommitSessionResponse:
        wanted = own_policy or MemoryPolicy.from_json(json.loads(batch.session.policy))
        plan = policy.resolve(wanted, self._registry, batch.peers, self._settings.session_skills)
        task_id = str(uuid4())
        index = await archives.commit(
            tx,
            space,
            batch,
            task_id=task_id,
            plan=json.dumps(plan.to_json()),
            traceparent=traceparent,
            priority=priority,
        )
        return pb.CommitSessionResponse(
            status=pb.COMMIT_STATUS_ACCEPTED,
            task_id=task_id,
            archive_uri=archive_uri(space.user, batch.session.session_id, index),
            archived=True,
        )

    def tell_refused(self, space: Space, session_id: str, reason: Refused) -> None:
        """Logs why no commit was made by itself, about once a minute of a user and kind: while it stays, each message
        of the user would be a line of the log."""
        now = time.monotonic()
        while self._told and next(iter(self._told.values())) <= now - TOLD_EVERY_SECONDS:
            del self._told[next(iter(self._told))]
        if (space, type(reason)) not in self._told:
            self._told[space, type(reason)] = now
            where = {"account": space.account, "user": space.user, "session": session_id}
            log.warning("auto_commit_refused", reason=str(reason), **where)

    def durable(self) -> None:
        failpoints.reached(failpoints.COMMIT_AFTER_COMMIT)
        self._committed()
