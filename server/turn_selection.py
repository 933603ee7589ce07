"""What the reconciler chose of what it was offered."""

from dataclasses import replace

from runekeep.v1 import turn_memory_service_pb2 as pb
from schemas.turns.selection import Offer, choose
from schemas.turns.window import MOST_LAST, Audience
from server import turn_context
from server.errors import invalid
from server.mutations import mutate
from server.turn_context import Wanted
from server.wire import turns as wire
from server.wire.basics import session_id
from storage import buckets, fingerprints, selections, turns
from storage.database import Space, Tx
from storage.store import Store

_LOAD_AGAIN = "Take it from LoadTurnContext of this session, or leave it empty"


async def set_(
    store: Store, space: Space, request: pb.SetTurnSelectionRequest, *, buckets_enabled: bool
) -> pb.SetTurnSelectionResponse:
    """Raises NotFound, RequestReused, StoreUnavailable, ApiError."""
    session = session_id("session", request.session, space.user)
    wish = wire.selection_from_wire(request.selection)
    given = _given(session, request.offer) if request.offer else None
    wanted = Wanted(session, wish.current_turn_id, Audience.RECONCILER, MOST_LAST, buckets_enabled)

    async def work(tx: Tx) -> pb.SetTurnSelectionResponse:
        offer = await (_offered_now(tx, space, wanted) if given is None else _still_there(tx, space, given))
        kept, dropped = choose(offer, wish, tx.now())
        stored = await selections.put(tx, space, session, kept)
        return pb.SetTurnSelectionResponse(selection=wire.selection_to_wire(stored), dropped=dropped)

    return await mutate(store.database, space, request, pb.SetTurnSelectionResponse, work, session_id=session)


def _given(session: str, token: str) -> Offer:
    """Raises ApiError."""
    try:
        offer = Offer.decode(token)
    except ValueError as error:
        raise invalid("offer", "is not one that this server made", _LOAD_AGAIN) from error
    if offer.session_id != session:
        raise invalid("offer", "was made for another session", _LOAD_AGAIN)
    return offer


async def _offered_now(tx: Tx, space: Space, wanted: Wanted) -> Offer:
    window = await turn_context.window(tx, space, wanted)
    cards = await turn_context.shown_buckets(tx, space, wanted, window.selection)
    return turn_context.offer(wanted.session_id, window, cards)


async def _still_there(tx: Tx, space: Space, given: Offer) -> Offer:
    """What there is of an offer. The token came by way of the caller, who may have written anything into it, and its
    session may be another of the same name by now. Raises ApiError, NotFound.
    """
    session = given.session_id
    if given.memory_version > await fingerprints.turn_version(tx, space, session):
        raise invalid("offer", "is newer than all that this session holds", _LOAD_AGAIN)
    found = await turns.find(tx, space, session, given.turn_ids)
    rows = await buckets.rows(tx, space, session) if given.bucket_ids else []
    names = {row.name for row in rows}
    return replace(
        given,
        turn_ids=tuple(turn_id for turn_id in given.turn_ids if turn_id in found),
        bucket_ids=tuple(bucket_id for bucket_id in given.bucket_ids if bucket_id in names),
    )
