"""Creates commits (phase 1) for CommitSession, for appends that reach a limit, and for idle sessions. Decides in the
caller's transaction whether a user may have one more commit, what it archives and what it extracts."""

import json
from dataclasses import dataclass
from uuid import uuid4

from runekeep_schemas import policy
from runekeep_schemas.documents.uris import archive_uri
from runekeep_schemas.policy import MemoryPolicy, UnknownTypeError
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import BacklogFull
from runekeep_storage.sessions import archives
from runekeep_storage.sessions.archives import Batch

Refusal = BacklogFull | UnknownTypeError
"""Why an automatic commit was refused: too many open commits, or a policy with a type that no longer exists."""


@dataclass(frozen=True, slots=True)
class CommitRules:
    """The server's rules for commits. `session_skills`: see `policy.resolve`; `max_open`: open commits of one user."""

    registry: Registry
    session_skills: bool
    max_open: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A new commit. `live`: number of messages that stay live."""

    task_id: str
    archive_uri: str
    live: int


async def create(
    tx: Tx,
    space: Space,
    session_id: str,
    rules: CommitRules,
    *,
    keep_recent: int,
    traceparent: str,
    own_policy: MemoryPolicy | None = None,
    priority: int = 0,
) -> Commit | None:
    """Archives all live messages but the newest `keep_recent`, and queues their extraction. Returns None if no message
    has content.

    Raises BacklogFull, UnknownTypeError or NotFound before anything is written.
    """
    batch = await archives.to_archive(tx, space, session_id, keep_recent)
    if batch is None:
        return None
    await archives.check_backlog(tx, space, rules.max_open)
    return await _archive(tx, space, batch, rules, traceparent, own_policy, priority)


async def create_automatic(
    tx: Tx, space: Space, session_id: str, rules: CommitRules, *, traceparent: str, keep_recent: int | None = None
) -> Commit | Refusal | None:
    """Like `create`, with the session's own policy and its rules of automatic commits; `keep_recent` overrides the rule
    if it is set. Returns a refusal instead of raising it: an append succeeds all the same, and an idle session is
    retried."""
    try:
        # Checked first: while the backlog is full, every message calls this, and the live messages grow.
        await archives.check_backlog(tx, space, rules.max_open)
        batch = await archives.to_archive(tx, space, session_id, keep_recent)
        return await _archive(tx, space, batch, rules, traceparent) if batch is not None else None
    except (BacklogFull, UnknownTypeError) as refusal:
        return refusal


async def _archive(
    tx: Tx,
    space: Space,
    batch: Batch,
    rules: CommitRules,
    traceparent: str,
    own_policy: MemoryPolicy | None = None,
    priority: int = 0,
) -> Commit:
    wanted = own_policy or MemoryPolicy.from_json(json.loads(batch.session.policy))
    plan = policy.resolve(wanted, rules.registry, batch.peers, rules.session_skills)
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
    return Commit(task_id, archive_uri(space.user, batch.session.session_id, index), batch.stay)
