"""The asynchronous client."""

from pathlib import Path
from types import TracebackType
from typing import Self

from runekeep.client.admin import AsyncAdmin
from runekeep.client.asks import UserAsks
from runekeep.client.connection.connection import Connection
from runekeep.client.history import UserHistory
from runekeep.client.memories.documents import UserDocuments
from runekeep.client.memories.memories import UserMemories
from runekeep.client.memories.recall import UserRecall
from runekeep.client.proposals import UserProposals
from runekeep.client.sessions.user_sessions import UserSessions
from runekeep.client.spaces.erasure import UserErasures
from runekeep.client.spaces.transfer import UserTransfers
from runekeep.client.spaces.users import AccountUsers
from runekeep.client.tasks.tasks import UserTasks
from runekeep.client.turns.user_turns import UserTurns


class AsyncClient(
    UserSessions,
    UserTasks,
    UserMemories,
    UserDocuments,
    UserRecall,
    UserAsks,
    UserTurns,
    UserHistory,
    UserProposals,
    UserErasures,
    UserTransfers,
    AccountUsers,
):
    """Calls one server as one user.

    `address` is `host:port`, or `https://host:port` for TLS. `account` and `user` name the user whose data it uses.
    `api_key` is the caller's key. `ca_file` holds the authority of the server's certificate, in place of those that the
    system trusts; `cert_file` and `key_file` hold the caller's own certificate; all in PEM. What is None comes from
    RUNEKEEP_ADDRESS, RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_API_KEY, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE and
    RUNEKEEP_KEY_FILE. You may replace the files at any time: later calls use their new contents.
    `timeout` in seconds replaces the deadlines of the methods.

    Raises ValueError for settings that cannot be used, such as a key that a network would carry in plain text. Every
    call may raise a RunekeepError. While the server is away, a call is repeated until its deadline.
    """

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
        self._connection = Connection(
            address,
            account=account,
            user=user,
            api_key=api_key,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            timeout=timeout,
        )

    @property
    def address(self) -> str:
        """The address of the server.

        ```python
        print(client.address)
        ```
        """
        return self._connection.address

    @property
    def admin(self) -> AsyncAdmin:
        """Calls of operators. The client's key or certificate must have the scope admin.

        ```python
        print(client.admin.status().version)
        ```
        """
        return AsyncAdmin(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. A later call opens a new one.

        ```python
        client.close()
        ```
        """
        await self._connection.close()
