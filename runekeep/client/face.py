"""The client for callers that block: the methods of AsyncClient and AsyncSession, each waited for."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runekeep.client.aio import AsyncClient
from runekeep.client.aio_admin import AsyncAdmin
from runekeep.client.aio_session import AsyncSession
from runekeep.client.portal import Face, blocking, blocking_iter, portal
from runekeep.client.results import AutoCommit


class Session(Face[AsyncSession]):
    """A session; see AsyncSession. Any number of threads may share it."""

    @property
    def session_id(self) -> str:
        return self._behind.session_id

    add_message = blocking(AsyncSession.add_message)
    add_messages = blocking(AsyncSession.add_messages)
    used = blocking(AsyncSession.used)
    commit = blocking(AsyncSession.commit)
    update = blocking(AsyncSession.update)
    info = blocking(AsyncSession.info)
    messages = blocking_iter(AsyncSession.messages)
    archives = blocking_iter(AsyncSession.archives)
    recall = blocking(AsyncSession.recall)
    context = blocking(AsyncSession.context)
    turn_context = blocking(AsyncSession.turn_context)
    submit_turn = blocking(AsyncSession.submit_turn)
    get_turn = blocking(AsyncSession.get_turn)
    turns = blocking_iter(AsyncSession.turns)
    select_turns = blocking(AsyncSession.select_turns)
    feedback = blocking(AsyncSession.feedback)
    clear_feedback = blocking(AsyncSession.clear_feedback)
    list_feedback = blocking(AsyncSession.list_feedback)
    buckets = blocking(AsyncSession.buckets)
    update_bucket = blocking(AsyncSession.update_bucket)
    reconcile_buckets = blocking(AsyncSession.reconcile_buckets)


class Admin(Face[AsyncAdmin]):
    """What operators do; see AsyncAdmin."""

    create_key = blocking(AsyncAdmin.create_key)
    keys = blocking_iter(AsyncAdmin.keys)
    rotate_key = blocking(AsyncAdmin.rotate_key)
    revoke_key = blocking(AsyncAdmin.revoke_key)
    accounts = blocking_iter(AsyncAdmin.accounts)
    set_limits = blocking(AsyncAdmin.set_limits)
    audit_events = blocking_iter(AsyncAdmin.audit_events)
    status = blocking(AsyncAdmin.status)


class Client(Face[AsyncClient]):
    """Speaks to one server as one user; see AsyncClient. Any number of threads may share it."""

    def __init__(
        self,
        address: str | None = None,
        *,
        account: str | None = None,
        user: str | None = None,
        api_key: str | None = None,
        ca_file: str | Path | None = None,
        cert_file: str | Path | None = None,
        key_file: str | Path | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(
            AsyncClient(
                address,
                account=account,
                user=user,
                api_key=api_key,
                ca_file=ca_file,
                cert_file=cert_file,
                key_file=key_file,
                timeout=timeout,
            )
        )

    @property
    def address(self) -> str:
        return self._behind.address

    @property
    def admin(self) -> Admin:
        """What operators do; the client's key or certificate must have the scope admin."""
        return Admin(self._behind.admin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def session(self, session_id: str | None = None) -> Session:
        """A session to write to, made on the server with its first use when there is none; a new id when None."""
        return Session(self._behind.session(session_id))

    def get_session(self, session_id: str, auto_create: bool = False) -> Session:
        """A session that exists, by id or URI. Raises NotFoundError when there is none and `auto_create` is off."""
        return Session(portal().run(self._behind.get_session(session_id, auto_create)))

    def create_session(
        self,
        session_id: str = "",
        *,
        title: str = "",
        memory_policy: dict[str, Any] | None = None,
        auto_commit: AutoCommit | None = None,
        request_id: str | None = None,
    ) -> Session:
        """A new session, with a policy that holds for its commits, and those that it makes by itself; never any when
        None. Raises AlreadyExistsError when the id is taken."""
        made = self._behind.create_session(
            session_id, title=title, memory_policy=memory_policy, auto_commit=auto_commit, request_id=request_id
        )
        return Session(portal().run(made))

    close = blocking(AsyncClient.close)
    list_sessions = blocking_iter(AsyncClient.list_sessions)
    delete_session = blocking(AsyncClient.delete_session)
    memory_diff = blocking(AsyncClient.memory_diff)
    get_task = blocking(AsyncClient.get_task)
    list_tasks = blocking_iter(AsyncClient.list_tasks)
    watch_task = blocking_iter(AsyncClient.watch_task)
    wait_task = blocking(AsyncClient.wait_task)
    cancel_task = blocking(AsyncClient.cancel_task)
    retry_task = blocking(AsyncClient.retry_task)
    extraction_record = blocking(AsyncClient.extraction_record)
    usage = blocking(AsyncClient.usage)
    find = blocking(AsyncClient.find)
    recall = blocking(AsyncClient.recall)
    read = blocking(AsyncClient.read)
    get_memory = blocking(AsyncClient.get_memory)
    write_memories = blocking(AsyncClient.write_memories)
    put_memory = blocking(AsyncClient.put_memory)
    edit_memory = blocking(AsyncClient.edit_memory)
    delete_memory = blocking(AsyncClient.delete_memory)
    ls = blocking(AsyncClient.ls)
    tree = blocking(AsyncClient.tree)
    glob = blocking(AsyncClient.glob)
    grep = blocking_iter(AsyncClient.grep)
    versions = blocking_iter(AsyncClient.versions)
    delete_user = blocking(AsyncClient.delete_user)
    erase = blocking(AsyncClient.erase)
    get_erasure = blocking(AsyncClient.get_erasure)
    wait_erasure = blocking(AsyncClient.wait_erasure)
    erasures = blocking_iter(AsyncClient.erasures)
    revisions = blocking_iter(AsyncClient.revisions)
    diff_revisions = blocking(AsyncClient.diff_revisions)
    rollback = blocking(AsyncClient.rollback)
    message_memories = blocking_iter(AsyncClient.message_memories)
    memory_types = blocking(AsyncClient.memory_types)
    assistant_signals = blocking_iter(AsyncClient.assistant_signals)
    list_feedback = blocking(AsyncClient.list_feedback)
    turn_artifacts = blocking_iter(AsyncClient.turn_artifacts)
    export_space = blocking(AsyncClient.export_space)
    import_space = blocking(AsyncClient.import_space)
