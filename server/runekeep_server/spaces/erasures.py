"""Handles requests for erasures."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from runekeep.v1 import space_service_pb2 as pb
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.idempotency import mutate, run_to_completion
from runekeep_server.protocol.pagination import next_token, open_page
from runekeep_server.wire.basics import session_id, timestamp
from runekeep_storage.database import Space, Tx
from runekeep_storage.erasure import receipts as stored
from runekeep_storage.erasure import transactions
from runekeep_storage.erasure.messages import REASON
from runekeep_storage.erasure.receipts import Erasure, Kind, Scope, State
from runekeep_storage.records import Job
from runekeep_storage.store import Store

_SCOPES = {
    Kind.USER: pb.ERASURE_SCOPE_USER,
    Kind.PEER: pb.ERASURE_SCOPE_PEER,
    Kind.SESSION: pb.ERASURE_SCOPE_SESSION,
    Kind.MESSAGES: pb.ERASURE_SCOPE_MESSAGES,
}
_STATES = {
    State.TAKING: pb.ERASURE_STATE_REMOVING,
    State.REMOVING: pb.ERASURE_STATE_REMOVING,
    State.PURGING: pb.ERASURE_STATE_PURGING,
    State.VERIFIED: pb.ERASURE_STATE_VERIFIED,
}


class Erasures:
    """`ended` is called for each job that was cancelled, or taken from its worker to start again. `queued` is called if
    some start again."""

    def __init__(self, store: Store, *, ended: Callable[[Job, str], None], queued: Callable[[], None]) -> None:
        self._store = store
        self._database = store.database
        self._ended = ended
        self._queued = queued

    async def erase(self, space: Space, request: pb.EraseDataRequest) -> pb.EraseDataResponse:
        """Erases data. Returns when none of it can be read any more. Raises ApiError, NotFound."""
        scope = _scope(space, request)
        erasure_id = f"er_{uuid4()}"
        ended: list[Job] = []

        async def work(tx: Tx) -> pb.EraseDataResponse:
            erasure, ended[:] = await transactions.begin(tx, space, erasure_id, scope)
            return pb.EraseDataResponse(erasure=self._to_wire(erasure))

        async def erase() -> pb.EraseDataResponse:
            try:
                answer = await mutate(self._database, space, request, pb.EraseDataResponse, work)
            finally:
                # Also if the outcome of the write is unknown: the space may be locked.
                self._store.relay.wake()
                self._store.cleaner.wake()
                self._store.eraser.wake()
            for job in ended:
                self._ended(job, REASON)
            if ended:
                self._queued()
            return answer

        # Runs to completion: before that, the eraser has nothing to do.
        answer = await run_to_completion(erase())
        # The erasure is durable: if this call ends here, the eraser continues.
        await self._store.eraser.take(space, answer.erasure.erasure_id)
        return answer

    async def get(self, space: Space, request: pb.GetErasureRequest) -> pb.GetErasureResponse:
        """Returns an erasure. Raises NotFound."""
        erasure = await self._database.read(stored.get, space, request.erasure_id)
        return pb.GetErasureResponse(erasure=self._to_wire(erasure))

    async def page(self, space: Space, request: pb.ListErasuresRequest) -> pb.ListErasuresResponse:
        """Returns a page of erasures. Raises ApiError for a page token of another list."""
        page = open_page(request, (int, str))
        after: Any = page.after
        found = await self._database.read(stored.page, space, after, page.size + 1)
        token = ""
        if len(found) > page.size:
            last = found[page.size - 1]
            token = next_token(request, (last.created_at, last.erasure_id))
        return pb.ListErasuresResponse(
            erasures=[self._to_wire(erasure) for erasure in found[: page.size]], next_page_token=token
        )

    def _to_wire(self, erasure: Erasure) -> pb.Erasure:
        counted = erasure.receipt
        return pb.Erasure(
            erasure_id=erasure.erasure_id,
            scope=_SCOPES[erasure.kind],
            state=_STATES[erasure.state],
            erased=pb.SpaceContents(
                sessions=counted.sessions,
                messages=counted.messages,
                archives=counted.archives,
                memories=counted.memories,
                memory_versions=counted.memory_versions,
                passages=counted.passages,
                turns=counted.turns,
                turn_artifacts=counted.turn_artifacts,
                blobs=counted.blobs,
                tasks=counted.tasks,
                answers=counted.answers,
            ),
            memories_reverted=counted.reverted,
            cancelled_tasks=counted.cancelled,
            left_to_operator=self._store.left_to_operator,
            create_time=timestamp(erasure.created_at),
            verify_time=timestamp(erasure.verified_at),
        )


def _scope(space: Space, request: pb.EraseDataRequest) -> Scope:
    match request.WhichOneof("scope"):
        case "user":
            if request.user != space.user:
                raise invalid("user", "is not the caller", "Give the name of the user in whose name you call")
            return Scope(Kind.USER)
        case "peer_id":
            return Scope(Kind.PEER, peer_id=request.peer_id)
        case "session":
            return Scope(Kind.SESSION, session_id=session_id("session", request.session, space.user))
        case _:
            name = session_id("messages.session", request.messages.session, space.user)
            return Scope(Kind.MESSAGES, session_id=name, message_ids=tuple(request.messages.message_ids))
