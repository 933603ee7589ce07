"""Lists the users of the account, and copies the calling user."""

from collections.abc import AsyncGenerator
from datetime import datetime

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.spaces.transfer import ImportResult
from runekeep.client.wire.proto_json import to_json
from runekeep.client.wire.result import Result
from runekeep.v1 import memory_service_pb2
from runekeep.v1 import space_service_pb2 as wire

_PAGE = 200


class AccountUser(Result):
    """A user of the account. `create_time`: when something was first stored for it."""

    user: str
    create_time: datetime


class AccountUsers:
    """Users of the account; a base of AsyncClient. The credentials must be of the whole account, such as a key
    of the scope account."""

    _connection: Connection

    async def users(self, prefix: str = "") -> AsyncGenerator[AccountUser, None]:
        """Lists the users of the account who have memories or sessions, by name; with `prefix` only those whose names
        begin with it.

        Raises AccessDeniedError for credentials of one user.

        ```python
        for user in client.users():
            print(user.user, user.create_time)
        ```
        """
        request = wire.ListUsersRequest(prefix=prefix, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.spaces.ListUsers, request):
            for user in page.users:
                yield AccountUser(to_json(user))

    async def copy_user(self, to: str, *, replace: bool = False, request_id: str | None = None) -> ImportResult:
        """Copies everything of the user to the user `to` of the same account, on the server, as a whole or not at all.
        That user must have no data; `replace` deletes it first, as `delete_user` does.

        Raises FailedPreconditionError (`SPACE_NOT_EMPTY`) if it has, AccessDeniedError for credentials of one user, and
        AbortedError if data of the user is deleted meanwhile: then copy again.

        ```python
        print(client.copy_user("robin_copy").contents.memories)
        ```
        """
        request = wire.CopyUserRequest(to_user=to, request_id=request_id or new_request_id())
        if replace:
            # With the same id: a repeat does not delete the copy.
            deletion = memory_service_pb2.DeleteUserRequest(user=to, request_id=request.request_id)
            await self._connection.call(self._connection.stubs.memories.DeleteUser, deletion, user=to)
        response = await self._connection.call(self._connection.stubs.spaces.CopyUser, request)
        return ImportResult(to_json(response))


class BlockingAccountUsers:
    """Blocking versions of the methods of AccountUsers; a base of Client."""

    users = blocking_iter(AccountUsers.users)
    copy_user = blocking(AccountUsers.copy_user)
