"""Data erased for good, with a receipt."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import cast

from runekeep.client.connection import Connection, new_request_id
from runekeep.client.erasure_results import Erasure
from runekeep.client.errors import DeadlineExceededError
from runekeep.client.plain import plain
from runekeep.v1 import space_service_pb2 as wire

_PAGE = 200
_LOOK_SECONDS = 1.0


class UserErasing:
    """What a user has erased; every AsyncClient is this too."""

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
        """Erases for good one of: everything of the user in whose name this client calls (`user`, its name once more);
        a `peer`; a `session`; the `messages` of a session, by their ids. There is no way back.

        Returns when nothing of it can be read any more, with the receipt as far as it is; see `wait_erasure`. Memories
        that came from it go back to what they were before, or are gone. Raises NotFoundError for what is not there,
        ValueError when not exactly one scope is named.
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
        response = await self._connection.call(self._connection.stubs.spaces.EraseData, request, 30)
        return cast(Erasure, plain(response.erasure))

    async def get_erasure(self, erasure_id: str) -> Erasure:
        """The receipt as it is now. Raises NotFoundError."""
        request = wire.GetErasureRequest(erasure_id=erasure_id)
        response = await self._connection.call(self._connection.stubs.spaces.GetErasure, request, 5)
        return cast(Erasure, plain(response.erasure))

    async def wait_erasure(self, erasure_id: str, timeout: float | None = None) -> Erasure:
        """The receipt once it is verified: nothing was left. It may take an hour, where large outputs of tools were
        written a short while before. Raises DeadlineExceededError after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                # Nothing tells of it: it is a matter of minutes, seldom of an hour.
                while (erasure := await self.get_erasure(erasure_id))["state"] != "verified":  # noqa: ASYNC110 (no event of the server can be waited for)
                    await asyncio.sleep(_LOOK_SECONDS)
                return erasure
        except TimeoutError:
            raise DeadlineExceededError(
                f"the erasure {erasure_id} is not verified yet", code="DEADLINE_EXCEEDED"
            ) from None

    async def erasures(self) -> AsyncGenerator[Erasure, None]:
        """Receipts, newest first."""
        request = wire.ListErasuresRequest(page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.spaces.ListErasures, request, 5)
            for erasure in page.erasures:
                yield cast(Erasure, plain(erasure))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token
