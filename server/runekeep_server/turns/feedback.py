"""Reactions to turns: finds their turns, stores, clears and lists them."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.secrets import withhold
from runekeep_schemas.turns.feedback import MACHINE, TEXT_LENGTH, Reaction, artifact_name, refusal
from runekeep_schemas.turns.text import cut
from runekeep_server.protocol.errors import invalid, unavailable
from runekeep_server.protocol.idempotency import find_answer, mutate
from runekeep_server.protocol.pagination import next_token, open_page
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.turns import search
from runekeep_server.turns.context import NEWEST
from runekeep_server.turns.search import Matches
from runekeep_server.wire import turns as wire
from runekeep_server.wire.basics import session_id
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import Turn
from runekeep_storage.sessions import sessions
from runekeep_storage.store import Store
from runekeep_storage.turns import feedback, fingerprints, turns
from runekeep_storage.turns.feedback import Said


async def submit(
    store: Store, space: Space, request: pb.SubmitFeedbackRequest, *, withhold_secrets: bool
) -> pb.SubmitFeedbackResponse:
    """Stores a reaction. Raises NotFound, RequestReused, TooManyReactions, StoreUnavailable, ApiError."""
    session = session_id("session", request.session, space.user)
    reaction = wire.reaction_from_wire(request.feedback, str(uuid4()))
    if wrong := refusal(reaction):
        name, what, todo = wrong
        raise invalid(f"feedback.{name}", what, todo)
    if request.match_queries and (reaction.origin != MACHINE or reaction.turn_id):
        raise invalid("match_queries", "go with a MACHINE's reaction that names no turn", "Leave them out")
    if withhold_secrets:
        text, _ = await scan_for_secrets(withhold, reaction.text)
        reaction = replace(reaction, text=cut(text, TEXT_LENGTH))
    if request.match_queries:
        # A repeat must not search: the search might fail although the answer is stored.
        before = await find_answer(store.database, space, request, pb.SubmitFeedbackResponse)
        if before is not None:
            return before
    queries = [wire.query_from_wire(one) for one in request.match_queries]
    matched = await search.matches(store, space, session, queries, but=reaction.from_turn_id)

    async def work(tx: Tx) -> pb.SubmitFeedbackResponse:
        await sessions.get(tx, space, session)
        turn = await _target(tx, space, session, reaction, matched)
        stored = await feedback.put(tx, space, session, turn, reaction)
        found = (await fingerprints.of(tx, space, session, [turn.turn_id])).get(turn.turn_id)
        [said] = wire.feedback_to_wire(space.user, [Said(session, stored, found.objective if found else "")])
        return pb.SubmitFeedbackResponse(feedback=said)

    return await mutate(store.database, space, request, pb.SubmitFeedbackResponse, work, session_id=session)


async def _target(tx: Tx, space: Space, session: str, reaction: Reaction, matched: Matches) -> Turn:
    """Returns the turn of a reaction: the named one; otherwise, among the turns before the one of the reaction, the
    best match of the queries, or the newest. Raises NotFound, ApiError."""
    if reaction.turn_id:
        return await turns.get(tx, space, session, reaction.turn_id)
    found = await turns.find(tx, space, session, [reaction.from_turn_id, *matched.turns])
    said_in = found.get(reaction.from_turn_id)
    before = said_in.sequence if said_in else NEWEST
    for turn_id in matched.turns:
        if turn_id in found and found[turn_id].sequence < before:
            return found[turn_id]
    if matched.unanswered:
        # The newest turn would be a guess that is stored permanently.
        raise unavailable("index", "The search for the turn that the reaction is about cannot be answered now")
    newest = await turns.before(tx, space, session, before, 1)
    if not newest:
        raise invalid("feedback.turn_id", "is empty, and there is no earlier turn", "Name the turn")
    return newest[0]


async def clear(store: Store, space: Space, request: pb.ClearFeedbackRequest) -> pb.ClearFeedbackResponse:
    """Deletes reactions. Raises NotFound, RequestReused, StoreUnavailable, ApiError."""
    session = session_id("session", request.session, space.user)

    async def work(tx: Tx) -> pb.ClearFeedbackResponse:
        await sessions.get(tx, space, session)
        return pb.ClearFeedbackResponse(cleared=await feedback.clear(tx, space, session, request.turn_id))

    return await mutate(store.database, space, request, pb.ClearFeedbackResponse, work, session_id=session)


async def list_(store: Store, space: Space, request: pb.ListFeedbackRequest) -> pb.ListFeedbackResponse:
    """Lists reactions. Raises NotFound, StoreUnavailable, ApiError."""
    session = session_id("session", request.session, space.user) if request.session else ""
    if request.turn_ids and not session:
        raise invalid("turn_ids", "go with a session", "Name it, or leave the turns out")
    page = open_page(request, (int, str, str))
    after: Any = page.after
    start = wire.time_from_wire("start_time", request.start_time)
    # For the store, 0 means no end.
    end = max(1, wire.time_from_wire("end_time", request.end_time)) if request.HasField("end_time") else 0
    ids = list(request.turn_ids)

    async def read(tx: Tx, space: Space) -> pb.ListFeedbackResponse:
        if session:
            await sessions.get(tx, space, session)
        counts = await feedback.counts(tx, space, session, ids, start, end)
        found = await feedback.page(tx, space, session, ids, start, end, after, page.size + 1)
        token = ""
        if len(found) > page.size:
            last = found[page.size - 1]
            token = next_token(request, (last.reaction.created_at, last.session_id, artifact_name(last.reaction)))
        return pb.ListFeedbackResponse(
            feedback=wire.feedback_to_wire(space.user, found[: page.size]),
            counts=wire.counts_to_wire(counts),
            next_page_token=token,
        )

    return await store.database.read(read, space)
