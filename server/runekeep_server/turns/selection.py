"""Stores what the reconciler chose from its offer."""

from dataclasses import replace

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.turns.selection import Offer, choose
from runekeep_schemas.turns.window import MAX_LAST, Audience
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.idempotency import mutate
from runekeep_server.turns import context
from runekeep_server.turns.context import Wanted
from runekeep_server.wire import turns as wire
from runekeep_server.wire.basics import session_id
from runekeep_storage.database import Space, Tx
from runekeep_storage.store import Store
from runekeep_storage.turns import buckets, fingerprints, selections, turns

_LOAD_AGAIN = "Take it from LoadTurnContext of this session, or leave it empty"


async def set_(
    store: Store, space: Space, request: pb.SetTurnSelectionRequest, *, buckets_enabled: bool
) -> pb.SetTurnSelectionResponse:
    """Stores a selection. Raises NotFound, RequestReused, StoreUnavailable, ApiError."""
    session = session_id("session", request.session, space.user)
    wish = wire.selection_from_wire(request.selection)
    given = _given(session, request.offer) if request.offer else None
    wanted = Wanted(session, wish.current_turn_id, Audience.RECONCILER, MAX_LAST, buckets_enabled)

    async def work(tx: Tx) -> pb.SetTurnSelectionResponse:
        offer = await (_offered_now(tx, space, wanted) if given is None else _still_there(tx, space, given))
        kept, dropped = choose(offer, wish, tx.now())
        stored = await selections.put(tx, space, session, kept)
        return pb.SetTurnSelectionResponse(selection=wire.selection_to_wire(stored), dropped=dropped)

    return await mutate(store.database, space, request, pb.SetTurnSelectionResponse, work, session_id=session)


def _given(session: str, token: str) -> Offer:
    """Returns the offer in a token. Raises ApiError."""
    try:
        offer = Offer.decode(token)
    except ValueError as error:
        raise invalid("offer", "is not one that this server made", _LOAD_AGAIN) from error
    if offer.session_id != session:
        raise invalid("offer", "was made for another session", _LOAD_AGAIN)
    return offer


async def _offered_now(tx: Tx, space: Space, wanted: Wanted) -> Offer:
    window = await context.window(tx, space, wanted)
    cards = await context.shown_buckets(tx, space, wanted, window.selection)
    return context.offer(wanted.session_id, window, cards)


async def _still_there(tx: Tx, space: Space, given: Offer) -> Offer:
    """Returns the part of an offer that still exists. The caller may have forged the token, and its session may have
    been replaced by another of the same name. Raises ApiError, NotFound."""
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
