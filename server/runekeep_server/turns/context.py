"""Loads the context of a conversation that an agent sees before it acts.

The context is one snapshot of the store: one read transaction, whose number of statements does not grow with the
conversation. Context queries run before, because they need the index and the embedder.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.turns.buckets import Bucket
from runekeep_schemas.turns.fingerprint import Fingerprint, Promotion
from runekeep_schemas.turns.sections import Candidate, Memory, Shown, TargetedReaction, joined, sections
from runekeep_schemas.turns.selection import Offer, Selection
from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.views import compressed_view
from runekeep_schemas.turns.window import (
    FEEDBACK_SHOWN,
    LAST_TURNS,
    MAX_SIGNAL_TURNS,
    Audience,
    Place,
    candidates,
    chosen,
    chosen_turns,
    loaded,
)
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES
from runekeep_server.protocol.pagination import fitting
from runekeep_server.protocol.truncation import shorten
from runekeep_server.turns import search
from runekeep_server.turns.search import Match
from runekeep_server.turns.texts import HEAD, MESSAGES, TAIL, outlined
from runekeep_server.wire import turns as wire
from runekeep_server.wire.basics import session_id
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import Turn
from runekeep_storage.store import Store
from runekeep_storage.turns import buckets, feedback, fingerprints, selections, turns
from runekeep_storage.turns.feedback import Said
from runekeep_storage.turns.turns import Outline

NEWEST = 2**62
"""Sequence of a turn without messages, which sorts after all others."""
SIGNAL_BYTES = 512 * 1024
"""Maximum bytes of assistant signals; the newest are kept. They occur twice more as text in the answer, and a gRPC
client accepts 4 MiB by default."""

_AUDIENCES = {
    pb.CONTEXT_AUDIENCE_GATE: Audience.GATE,
    pb.CONTEXT_AUDIENCE_RECONCILER: Audience.RECONCILER,
    pb.CONTEXT_AUDIENCE_DOWNSTREAM: Audience.DOWNSTREAM,
    pb.CONTEXT_AUDIENCE_FINAL_ANSWER: Audience.FINAL_ANSWER,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request: audience, session and turn, how many turns before it, and the results of the context queries."""

    session_id: str
    current_turn_id: str
    audience: Audience
    last_turns: int
    buckets_enabled: bool
    matches: Mapping[str, Match] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """The turns to show. `turns` contains all of them that have messages. `memories` and `candidates` are ids, newest
    turn first; `recent` are the last ones. `version` is the version of the session's fingerprints."""

    version: int
    selection: Selection | None
    delta_count: int
    turns: Mapping[str, Turn]
    recent: frozenset[str]
    memories: Sequence[str]
    candidates: Sequence[str]


async def window(tx: Tx, space: Space, wanted: Wanted) -> Window:
    """Selects the turns to show. Raises NotFound for an unknown session."""
    session = wanted.session_id
    version = await fingerprints.turn_version(tx, space, session)
    selection = await selections.get(tx, space, session)
    delta_count, delta = await fingerprints.delta(tx, space, session, selection.memory_version if selection else 0)
    by_choice = chosen(wanted.audience, wanted.current_turn_id, selection) or ()
    prior = chosen_turns(wanted.audience, selection)
    known = await turns.find(tx, space, session, [wanted.current_turn_id, *wanted.matches, *by_choice, *prior, *delta])
    current = known.get(wanted.current_turn_id)
    before = current.sequence if current else NEWEST
    recent = await turns.before(tx, space, session, before, wanted.last_turns)
    known |= {turn.turn_id: turn for turn in recent}

    def places(ids: Sequence[str], below: int = NEWEST) -> list[Place]:
        return [(one, known[one].sequence) for one in ids if one in known and known[one].sequence < below]

    last = [(turn.turn_id, turn.sequence) for turn in recent]
    hits = places(list(wanted.matches), before)
    return Window(
        version=version,
        selection=selection,
        delta_count=delta_count,
        turns=known,
        recent=frozenset(turn.turn_id for turn in recent),
        memories=loaded(
            wanted.audience,
            (wanted.current_turn_id, before),
            last,
            hits,
            places(delta, before),
            selection,
            places(by_choice),
        ),
        candidates=candidates(wanted.audience, last, hits, selection, places(prior, before)),
    )


async def shown_buckets(tx: Tx, space: Space, wanted: Wanted, selection: Selection | None) -> list[Bucket]:
    """Returns the cards of enabled buckets, latest change first."""
    if not wanted.buckets_enabled or wanted.audience is Audience.FINAL_ANSWER:
        return []
    rows = await buckets.rows(tx, space, wanted.session_id)
    cards = [Bucket.from_text(row.text) for row in rows]
    filtered = selection.memory_bucket_ids if selection and wanted.audience.is_filtered else None
    return [card for card in cards if card.enabled and (filtered is None or card.bucket_id in filtered)]


def offer(session: str, at: Window, cards: Sequence[Bucket]) -> Offer:
    """Returns the offer: what a reconciler may choose of the shown turns and buckets."""
    ids = dict.fromkeys((*at.memories, *at.candidates))
    there = tuple(turn_id for turn_id in ids if turn_id in at.turns)
    return Offer(session, there, tuple(card.bucket_id for card in cards), at.version)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A snapshot. `outlines`: by turn id, the messages of the current turn and of the candidates."""

    now: int
    window: Window
    fingerprints: Mapping[str, Fingerprint]
    outlines: Mapping[str, Sequence[Outline]]
    said: Sequence[Said]
    promoted: Sequence[tuple[str, Promotion]]
    cards: Sequence[Bucket]


async def load(
    store: Store,
    space: Space,
    request: pb.LoadTurnContextRequest,
    *,
    buckets_enabled: bool,
    most_bytes: int = DEFAULT_SIZES.record,
) -> pb.LoadTurnContextResponse:
    """Returns the context in at most `most_bytes`, even if the index and the embedder are unavailable. Raises NotFound,
    StoreUnavailable, ApiError."""
    session = session_id("session", request.session, space.user)
    queries = [wire.query_from_wire(one) for one in request.ctx_retrieval_queries]
    matched = await search.matches(store, space, session, queries, but=request.current_turn_id)
    wanted = Wanted(
        session,
        request.current_turn_id,
        _AUDIENCES[request.audience],
        request.last_turns or LAST_TURNS,
        buckets_enabled,
        matched.turns,
    )
    seen = await store.database.read(_read, space, wanted)
    # In a thread: signals of hundreds of turns and megabytes of messages take time.
    answer = await asyncio.to_thread(_answer, space.user, wanted, seen, render=request.render)
    answer.unanswered_queries.extend(matched.unanswered)
    if answer.ByteSize() > most_bytes:
        await asyncio.to_thread(shorten, answer, most_bytes)
    return answer


async def _read(tx: Tx, space: Space, wanted: Wanted) -> _Seen:
    session = wanted.session_id
    at = await window(tx, space, wanted)
    viewed = [turn_id for turn_id in (wanted.current_turn_id, *at.candidates) if turn_id in at.turns]
    found = await fingerprints.of(tx, space, session, [wanted.current_turn_id, *at.memories, *at.candidates])
    outlines = {turn_id: await turns.outlines(tx, space, at.turns[turn_id], MESSAGES, HEAD, TAIL) for turn_id in viewed}
    final = wanted.audience is Audience.FINAL_ANSWER
    return _Seen(
        now=tx.now(),
        window=at,
        fingerprints=found,
        outlines=outlines,
        said=await feedback.page(tx, space, session, (), 0, 0, None, FEEDBACK_SHOWN),
        promoted=await fingerprints.signals(tx, space, limit=MAX_SIGNAL_TURNS) if final else [],
        cards=await shown_buckets(tx, space, wanted, at.selection),
    )


def _objective(found: Mapping[str, Fingerprint], turn_id: str) -> str:
    fingerprint = found.get(turn_id)
    return fingerprint.objective if fingerprint else ""


def _memories(seen: _Seen) -> list[Memory]:
    return [
        Memory(wire.without_signals(seen.fingerprints[turn_id]), seen.window.turns[turn_id].started_at)
        for turn_id in seen.window.memories
        if turn_id in seen.fingerprints and turn_id in seen.window.turns
    ]


def _candidate(wanted: Wanted, seen: _Seen, turn_id: str) -> Candidate:
    at = seen.window
    turn, objective = at.turns[turn_id], _objective(seen.fingerprints, turn_id)
    text = outlined(turn, seen.outlines[turn_id])
    return Candidate(
        turn_id=turn_id,
        started_at=turn.started_at,
        view=compressed_view(text, objective, Summary.from_text(turn.summary)),
        objective=objective,
        recent=turn_id in at.recent,
        selected=at.selection is not None and turn_id in at.selection.turn_ids,
        queries=wanted.matches[turn_id].queries if turn_id in wanted.matches else (),
    )


def _promotions(
    answer: pb.LoadTurnContextResponse, user: str, promoted: Sequence[tuple[str, Promotion]]
) -> list[Promotion]:
    """Writes the newest promotions that fit into SIGNAL_BYTES into the answer, and returns them."""
    rows = answer.assistant_signals
    wire.write_promotions(rows, user, promoted)
    if answer.ByteSize() > SIGNAL_BYTES:
        del rows[fitting(rows, SIGNAL_BYTES) :]
    return [promotion for _, promotion in promoted[: len(rows)]]


def _answer(user: str, wanted: Wanted, seen: _Seen, *, render: bool) -> pb.LoadTurnContextResponse:
    at, current = seen.window, wanted.current_turn_id
    shown = {one: _candidate(wanted, seen, one) for one in (current, *at.candidates) if one in at.turns}
    memories = _memories(seen)
    answer = pb.LoadTurnContextResponse(
        current=_candidate_to_wire(user, wanted, seen, current, shown.get(current)),
        candidates=[_candidate_to_wire(user, wanted, seen, one, shown[one]) for one in at.candidates],
        turn_memories=[wire.fingerprint_to_wire(memory.fingerprint) for memory in memories],
        buckets=[wire.bucket_to_wire(user, wanted.session_id, card) for card in seen.cards],
        feedback=wire.feedback_to_wire(user, seen.said),
        selection=wire.selection_to_wire(at.selection) if at.selection is not None else None,
        delta_count=at.delta_count,
        offer=offer(wanted.session_id, at, seen.cards).encode(),
    )
    promotions = _promotions(answer, user, seen.promoted)
    if render:
        told = Shown(
            current_turn_id=current,
            current=shown.get(current),
            candidates=[shown[one] for one in at.candidates],
            feedback=[TargetedReaction(one.reaction, one.objective) for one in seen.said],
            memories=memories,
            promotions=promotions,
            selected=at.selection is not None,
        )
        blocks = sections(wanted.audience, told, seen.now)
        answer.sections.extend(pb.RenderedSection(header=one.header, text=one.text) for one in blocks)
        answer.text = joined(blocks)
    return answer


def _candidate_to_wire(
    user: str, wanted: Wanted, seen: _Seen, turn_id: str, shown: Candidate | None
) -> pb.CandidateTurn:
    if shown is None:
        # The turn is in progress and has no messages yet.
        return pb.CandidateTurn(turn=wire.unknown_turn_to_wire(user, wanted.session_id, turn_id))
    turn, at = seen.window.turns[turn_id], seen.window
    # The fingerprint of a turn that was not chosen must not be shown here either.
    hidden = wanted.audience.is_filtered and turn_id not in at.memories
    fingerprint = None if hidden else seen.fingerprints.get(turn_id)
    return pb.CandidateTurn(
        turn=wire.turn_to_wire(
            user, turn, wire.without_signals(fingerprint) if fingerprint else None, Summary.from_text(turn.summary)
        ),
        compressed_view=shown.view,
        recent=shown.recent,
        selected=shown.selected,
        matched_queries=shown.queries,
        score=wanted.matches[turn_id].score if turn_id in wanted.matches else 0.0,
    )
