"""Erases data for good, with a receipt; deletes users."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.connection.errors import DeadlineExceededError
from runekeep.client.spaces.results import DeletedUser, Erasure
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import memory_service_pb2
from runekeep.v1 import space_service_pb2 as wire

_PAGE = 200
_POLL_SECONDS = 1.0


class UserErasures:
    """Erasures of a user; every AsyncClient is this too."""

    _connection: Connection

    async def erase(
        self,
        *,
        user: str | None = None,
        peer: str | None = None,
        session: str | None = None,
        messages: Sequence[str] = (),
        request_id: str | None = None,
    ) -> Erasure:
        """Erases data for good: everything of the `user` that this client calls for (its name, to confirm); a `peer`; a
        `session`; or the `messages` of a session, by their ids. You cannot undo this.

        Returns the receipt once nobody can read the data; see `wait_erasure`. Memories that came from it return to
        their earlier version, or are deleted. Raises NotFoundError for unknown data, and ValueError unless exactly one
        scope is named.

        ```python
        erasure = client.erase(session="chat_001")
        print(erasure.erasure_id, erasure.erased.messages)
        ```
        """
        named = [user is not None, peer is not None, session is not None]
        if sum(named) != 1 or (messages and session is None):
            raise ValueError("name one of user, peer and session; messages go with their session")
        request = wire.EraseDataRequest(request_id=request_id or new_request_id())
        if user is not None:
            request.user = user
        elif peer is not None:
            request.peer_id = peer
        elif messages:
            request.messages.session = session or ""
            request.messages.message_ids.extend(messages)
        else:
            request.session = session or ""
        response = await self._connection.call(self._connection.stubs.spaces.EraseData, request)
        return Erasure(to_json(response.erasure))

    async def get_erasure(self, erasure_id: str) -> Erasure:
        """Returns the current receipt. Raises NotFoundError.

        ```python
        for erasure in client.erasures():
            print(client.get_erasure(erasure.erasure_id).state)
        ```
        """
        request = wire.GetErasureRequest(erasure_id=erasure_id)
        response = await self._connection.call(self._connection.stubs.spaces.GetErasure, request)
        return Erasure(to_json(response.erasure))

    async def wait_erasure(self, erasure_id: str, timeout: float | None = None) -> Erasure:
        """Returns the receipt once it is verified that nothing is left. This may take an hour if large tool outputs
        were stored shortly before. Raises DeadlineExceededError after `timeout` seconds.

        ```python
        client.wait_erasure(client.erase(peer="alex").erasure_id, timeout=7200)
        ```
        """
        try:
            async with asyncio.timeout(timeout):
                while (erasure := await self.get_erasure(erasure_id)).state != "verified":  # noqa: ASYNC110 (no event of the server can be waited for)
                    await asyncio.sleep(_POLL_SECONDS)
                return erasure
        except TimeoutError:
            raise DeadlineExceededError(
                f"the erasure {erasure_id} is not verified yet", code="DEADLINE_EXCEEDED"
            ) from None

    async def erasures(self) -> AsyncGenerator[Erasure, None]:
        """Lists receipts, newest first.

        ```python
        for erasure in client.erasures():
            print(erasure.create_time, erasure.scope, erasure.state)
        ```
        """
        request = wire.ListErasuresRequest(page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.spaces.ListErasures, request):
            for erasure in page.erasures:
                yield Erasure(to_json(erasure))

    async def delete_user(self, user: str, *, request_id: str | None = None) -> DeletedUser:
        """Deletes everything of the user that this client calls for; `user` is its name, to confirm.

        Deletes sessions, archives, memories with their history, and tasks at once, and cancels open commits. The name
        may be used again. Raises InvalidArgumentError for another name.

        ```python
        print(client.delete_user("robin").memories)
        ```
        """
        request = memory_service_pb2.DeleteUserRequest(user=user, request_id=request_id or new_request_id())
        response = await self._connection.call(self._connection.stubs.memories.DeleteUser, request)
        return DeletedUser(to_json(response))


class BlockingUserErasures:
    """Blocking versions of the methods of UserErasures; a base of Client."""

    erase = blocking(UserErasures.erase)
    get_erasure = blocking(UserErasures.get_erasure)
    wait_erasure = blocking(UserErasures.wait_erasure)
    erasures = blocking_iter(UserErasures.erasures)
    delete_user = blocking(UserErasures.delete_user)
