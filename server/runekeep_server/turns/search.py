"""Context queries: find the turns of a session that mention something.

Archived messages are found by the same search as memories, among the passages of the session. Messages that no index
has yet are matched by their words in the rows, so that a turn is found before any commit. This covers the newest of
them, see `runekeep_storage.search.live_messages`; if there are more, the query is reported as unanswered.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from runekeep_schemas.documents.uris import session_uri
from runekeep_schemas.turns.fingerprint import Query
from runekeep_storage.database import Space, Tx
from runekeep_storage.index import sparse
from runekeep_storage.index.base import IndexUnavailable, PointKind
from runekeep_storage.records import Message, Passage
from runekeep_storage.search import live_messages
from runekeep_storage.search.live_messages import Worded
from runekeep_storage.search.requests import FindRequest
from runekeep_storage.store import Store
from runekeep_storage.turns import turns

TURNS = 5
"""Maximum of turns that one query finds."""
PASSAGES = 50
"""Passages requested from the index: several may belong to one turn, and `where` drops some."""
RANK_CONSTANT = 5
"""Constant of the reciprocal rank. It is small, so that the first ranks dominate."""
SECONDS = 3.0
"""Timeout of the index and the embedder for one query. Two timeouts leave time for the rest of the call."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Match:
    """A turn that queries found. `queries`: their texts, in order; `score`: the best one."""

    queries: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Matches:
    """`turns`: by id, best first. `unanswered`: queries whose turns may be missing, because the index or the embedder
    is unavailable, or the index is so far behind that not all messages can be searched without it."""

    turns: Mapping[str, Match] = field(default_factory=dict)
    unanswered: tuple[str, ...] = ()


async def matches(store: Store, space: Space, session_id: str, queries: Sequence[Query], but: str) -> Matches:
    """Returns the turns that the queries find among those before the turn `but`, or among all if that has no messages.
    Call it outside of transactions. Raises NotFound."""
    if not queries:
        return Matches()
    unindexed = await store.database.read(live_messages.unindexed, space, session_id)
    # Filtered before results are cut to the best ones: later turns must not displace earlier ones.
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
    """Returns the turn, and those of the messages' turns that began after it."""
    there = (await turns.find(tx, space, session_id, [turn_id])).get(turn_id)
    if there is None:
        return {turn_id}
    said_later = {one.turn_id for one in messages if one.turn_id and one.sequence > there.sequence}
    found = await turns.find(tx, space, session_id, said_later)
    return {turn_id} | {one.turn_id for one in found.values() if one.sequence > there.sequence}


@dataclass(frozen=True, slots=True)
class _Archived:
    """`whole`: every part of the search was available."""

    found: list[tuple[Message, float]]
    whole: bool


async def _archived(store: Store, space: Space, session_id: str, query: Query) -> _Archived | None:
    """Returns the messages that the index finds, with their scores, or None if the index is unavailable."""
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
    # All results are passages of this session, as requested.
    said = [one.item.sequence for one in answer.results if isinstance(one.item, Passage)]
    messages = await store.database.read(live_messages.at, space, session_id, said)
    return _Archived(_by_rank([messages[one] for one in said if one in messages]), not answer.degraded)


def _among(store: Store, session_id: str, live: Sequence[Worded], query: Query) -> list[tuple[Message, float]]:
    wanted = [one for one in live if _fits(one.message, query.where)]
    words = sparse.encode_query(query.query)
    return _by_rank(live_messages.ranked(session_id, wanted, words, store.finder.ranking))


def _by_rank(best_first: Sequence[Message]) -> list[tuple[Message, float]]:
    """Scores messages by rank, so that archived and live ones can be merged. Their own scores are not comparable."""
    return [(message, 1 / (RANK_CONSTANT + rank)) for rank, message in enumerate(best_first, 1)]


def _fits(message: Message, where: str) -> bool:
    if where == "assistant_artifact":
        return any(part["type"] == "tool" for part in message.parts)
    return not where or message.role == where


def _best_turns(query: Query, found: Sequence[tuple[Message, float]], but: Collection[str]) -> list[tuple[str, float]]:
    """Returns at most TURNS turns with matching messages, best first."""
    scores: dict[str, float] = {}
    for message, score in found:
        turn_id = message.turn_id
        if turn_id and turn_id not in but and _fits(message, query.where):
            scores[turn_id] = max(score, scores.get(turn_id, 0.0))
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:TURNS]
