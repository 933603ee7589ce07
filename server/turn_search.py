"""Context queries: which turns of a session speak of something.

What is archived is found by the same search as memories, among the passages of the session. What no index holds yet is
found by its words from the rows, so that a turn is found before any commit: the newest of it, see
`storage.live_messages`, and where that is not all of it, the query is told to be unanswered.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from schemas.turns.fingerprint import Query
from schemas.uris import session_uri
from storage import live_messages, sparse, turns
from storage.database import Space, Tx
from storage.find import FindRequest
from storage.index.base import IndexUnavailable, PointKind
from storage.live_messages import Worded
from storage.records import Message, Passage
from storage.store import Store

TURNS = 5
"""Turns that one query finds at most."""
PASSAGES = 50
"""Passages that the index is asked for: several may be of one turn, and `where` drops some."""
RANK_CONSTANT = 5
"""Of reciprocal ranks: small, so that the first places weigh."""
SECONDS = 3.0
"""For the index and the embedder, for one query; what takes longer is as good as away. Two leave time for the rest."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Match:
    """A turn that queries found. `queries`: their texts, in their order; `score`: the best one."""

    queries: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Matches:
    """`turns` by id, best first. `unanswered`: queries whose turns may be missing, because the index or the embedder is
    away, or so far behind that not all can be looked through beside it."""

    turns: Mapping[str, Match] = field(default_factory=dict)
    unanswered: tuple[str, ...] = ()


async def matches(store: Store, space: Space, session_id: str, queries: Sequence[Query], but: str) -> Matches:
    """Turns of the session that the queries find, of those before the turn `but`; of all while that has no messages.

    Not in a transaction; raises NotFound.
    """
    if not queries:
        return Matches()
    unindexed = await store.database.read(live_messages.unindexed, space, session_id)
    # Before anything is cut to the best: later turns must not take the places of earlier ones.
    left_out = await store.database.read(_not_before, space, session_id, but, unindexed.messages)
    searched = [message for message in unindexed.messages if message.turn_id not in left_out]
    live = await asyncio.to_thread(live_messages.worded, searched)
    found: dict[str, Match] = {}
    unanswered = []
    for query in queries:
        ranked = await asyncio.to_thread(_among, store, session_id, live, query)
        whole = not unindexed.lacking
        if unindexed.indexed:
            archived = await _archived(store, space, session_id, query)
            whole = whole and archived is not None and archived.whole
            if archived is not None:
                said = [message for message, _ in archived.found]
                left_out |= await store.database.read(_not_before, space, session_id, but, said)
                ranked += archived.found
        if not whole:
            unanswered.append(query.query)
        for turn_id, score in _best_turns(query, ranked, left_out):
            before = found.get(turn_id, Match((), 0.0))
            found[turn_id] = Match((*before.queries, query.query), max(before.score, score))
    best_first = sorted(found.items(), key=lambda item: (-item[1].score, item[0]))
    return Matches(dict(best_first), tuple(unanswered))


async def _not_before(tx: Tx, space: Space, session_id: str, turn_id: str, messages: Sequence[Message]) -> set[str]:
    """The turn, and those of the messages' turns that began after it."""
    there = (await turns.find(tx, space, session_id, [turn_id])).get(turn_id)
    if there is None:
        return {turn_id}
    said_later = {one.turn_id for one in messages if one.turn_id and one.sequence > there.sequence}
    found = await turns.find(tx, space, session_id, said_later)
    return {turn_id} | {one.turn_id for one in found.values() if one.sequence > there.sequence}


@dataclass(frozen=True, slots=True)
class _Archived:
    """`whole`: no part of the search was away."""

    found: list[tuple[Message, float]]
    whole: bool


async def _archived(store: Store, space: Space, session_id: str, query: Query) -> _Archived | None:
    """Messages that the index finds, with their scores; None while it is away."""
    wanted = FindRequest(
        query.query,
        limit=PASSAGES,
        uri_prefix=session_uri(space.user, session_id),
        kinds=(PointKind.PASSAGE,),
    )
    try:
        async with asyncio.timeout(SECONDS):
            answer = await store.finder.find(space, wanted)
    except (IndexUnavailable, TimeoutError) as error:
        log.warning("context_query_without_index", error=type(error).__name__)
        return None
    # All of them passages of this session, as was asked.
    said = [one.item.sequence for one in answer.results if isinstance(one.item, Passage)]
    messages = await store.database.read(live_messages.at, space, session_id, said)
    return _Archived(_by_rank([messages[one] for one in said if one in messages]), not answer.degraded)


def _among(store: Store, session_id: str, live: Sequence[Worded], query: Query) -> list[tuple[Message, float]]:
    wanted = [one for one in live if _fits(one.message, query.where)]
    words = sparse.encode_query(query.query)
    return _by_rank(live_messages.ranked(session_id, wanted, words, store.finder.ranking))


def _by_rank(best_first: Sequence[Message]) -> list[tuple[Message, float]]:
    """Scores that the archived and the live can be put in one order by: theirs are of different kinds."""
    return [(message, 1 / (RANK_CONSTANT + rank)) for rank, message in enumerate(best_first, 1)]


def _fits(message: Message, where: str) -> bool:
    if where == "assistant_artifact":
        return any(part["type"] == "tool" for part in message.parts)
    return not where or message.role == where


def _best_turns(query: Query, found: Sequence[tuple[Message, float]], but: Collection[str]) -> list[tuple[str, float]]:
    """At most TURNS of those whose messages were found, best first."""
    scores: dict[str, float] = {}
    for message, score in found:
        turn_id = message.turn_id
        if turn_id and turn_id not in but and _fits(message, query.where):
            scores[turn_id] = max(score, scores.get(turn_id, 0.0))
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:TURNS]
