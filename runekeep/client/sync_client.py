"""The blocking client. Its methods are declared in the rooms, below their coroutines."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runekeep.client.admin import Admin
from runekeep.client.asks import BlockingUserAsks
from runekeep.client.async_client import AsyncClient
from runekeep.client.blocking import BlockingWrapper, blocking
from runekeep.client.event_loop_thread import event_loop_thread
from runekeep.client.history import BlockingUserHistory
from runekeep.client.memories.documents import BlockingUserDocuments
from runekeep.client.memories.memories import BlockingUserMemories
from runekeep.client.memories.recall import BlockingUserRecall
from runekeep.client.proposals import BlockingUserProposals
from runekeep.client.sessions.results import AutoCommit, AutoCommitRules
from runekeep.client.sessions.session import Session
from runekeep.client.sessions.user_sessions import BlockingUserSessions
from runekeep.client.spaces.erasure import BlockingUserErasures
from runekeep.client.spaces.transfer import BlockingUserTransfers
from runekeep.client.spaces.users import BlockingAccountUsers
from runekeep.client.tasks.tasks import BlockingUserTasks
from runekeep.client.turns.user_turns import BlockingUserTurns


class Client(
    BlockingUserSessions,
    BlockingUserTasks,
    BlockingUserMemories,
    BlockingUserDocuments,
    BlockingUserRecall,
    BlockingUserAsks,
    BlockingUserTurns,
    BlockingUserHistory,
    BlockingUserProposals,
    BlockingUserErasures,
    BlockingUserTransfers,
    BlockingAccountUsers,
    BlockingWrapper[AsyncClient],
):
    """Calls one server as one user; see AsyncClient. Any number of threads may share it."""

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
        """The address of the server.

        ```python
        print(client.address)
        ```
        """
        return self._wrapped.address

    @property
    def admin(self) -> Admin:
        """Calls of operators. The client's key or certificate must have the scope admin.

        ```python
        print(client.admin.status().version)
        ```
        """
        return Admin(self._wrapped.admin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def session(self, session_id: str | None = None) -> Session:
        """Returns a session. Its first use creates it on the server if it does not exist. None: a new id.

        ```python
        session = client.session("chat_001")
        session.add_message("user", "I live in Lisbon")
        ```
        """
        return Session(self._wrapped.session(session_id))

    def get_session(self, session_id: str, auto_create: bool = False) -> Session:
        """Returns a session by id or URI. Raises NotFoundError if it does not exist, unless `auto_create`.

        ```python
        print(client.get_session("chat_001").info().message_count)
        ```
        """
        return Session(event_loop_thread().run(self._wrapped.get_session(session_id, auto_create)))

    def create_session(
        self,
        session_id: str = "",
        *,
        title: str = "",
        memory_policy: Mapping[str, Any] | None = None,
        auto_commit: AutoCommit | AutoCommitRules | None = None,
        request_id: str | None = None,
    ) -> Session:
        """Creates a session. `memory_policy` holds for its commits; `auto_commit` None: no automatic commits.

        Raises AlreadyExistsError if the id is taken.

        ```python
        session = client.create_session("chat_001", title="Holidays", auto_commit={"message_count": 20})
        ```
        """
        made = self._wrapped.create_session(
            session_id, title=title, memory_policy=memory_policy, auto_commit=auto_commit, request_id=request_id
        )
        return Session(event_loop_thread().run(made))

    close = blocking(AsyncClient.close)
