"""Recall: returns the most relevant memories and passages within a token budget, and avoids repeats within a session.

The search runs outside of transactions. One transaction then selects what the session gets, and stores it together with
the answer for repeated requests. So concurrent Recalls of one session behave as if they ran one after the other, and
none repeats what another returned.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas import secrets
from runekeep_schemas.documents.uris import session_uri
from runekeep_schemas.recall_budget import PASSAGES, Level, Packed, Quota, pack
from runekeep_schemas.recall_tokens import UNITS, count, weigh
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_server.memories import recall_candidates, recall_stable, recall_text, search
from runekeep_server.memories.recall_candidates import Result, passage_name
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.idempotency import find_answer, mutate
from runekeep_server.wire.basics import session_id, timestamp
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.index.base import Hit, PointKind
from runekeep_storage.records import Memory
from runekeep_storage.search import line_cosines, recalled
from runekeep_storage.search.found_texts import Depth, Room
from runekeep_storage.search.recalled import Given
from runekeep_storage.search.requests import FindAnswer
from runekeep_storage.store import Store

BUDGET = 2000
ENTRIES = 40
MIN_RESULTS = 20
TOKENS_A_RESULT = 80
"""For a small budget fewer results are searched, because reading and scoring their lines takes time: MIN_RESULTS, and
one more for each TOKENS_A_RESULT tokens."""
RESERVE = 20
"""Results beyond the limit that are searched for a session: another Recall may return the best ones meanwhile."""
WEAK_RELEVANCE = 0.2
"""If the best result has a lower relevance, the answer has at most WEAK_BUDGET tokens."""
WEAK_BUDGET = 99
_NARROWING = frozenset(
    "target_uri memory_types kinds peers tags start_time end_time score_threshold min_relevance quotas".split()
)
"""Fields that say what is relevant, or change the scores that relevance is calibrated for."""
QUERY_MESSAGES = 3
"""Number of the user's newest messages that form the default query, the newest first: embedders read the beginning of a
text."""
QUERY_CHARACTERS = 4000
_SECRET_CHARACTERS = 400
"""At the end of a text that was cut, so many characters may be a part of a secret, which has no known form."""

_READ_BYTES = 64 * 1024 * 1024
"""Maximum bytes of memories that one Recall reads. Of further memories it reads the abstracts."""
_READ_EACH_BYTES = 256 * 1024
_BYTES_A_TOKEN = 16
"""Maximum bytes of a memory that is read whole, per token of the budget. That is four times the size of a text of so
many tokens, because the text is in the fields too, and spaces at the ends of lines are not counted."""
_SHOWN = (Level.URI, Level.ABSTRACT)
"""The levels at which a context part shows a memory."""
_HEADINGS = {section: weigh(heading) for section, heading in recall_text.HEADINGS.items()}


@dataclass(frozen=True, slots=True)
class _Session:
    """What is known about a session before the search. `shown`: by URI and level, when the live messages came that show
    it; `given`: by name, the versions that the session got before."""

    query: str
    shown: Mapping[tuple[str, int], int]
    given: Mapping[str, int]

    def knows(self, hit: Hit) -> bool:
        """Returns whether the session already got the hit. This is uncertain for a memory that changed after it was
        shown."""
        if hit.kind is PointKind.PASSAGE:
            return passage_name(hit.session, hit.sequence) in self.given
        return self.given.get(hit.uri) == hit.version or any((hit.uri, level) in self.shown for level in _SHOWN)


async def recall(
    store: Store, space: Space, request: pb.RecallRequest, *, withhold_secrets: bool = True
) -> pb.RecallResponse:
    """Answers a Recall. `withhold_secrets`: a query made from messages has notes in place of secrets, because an
    embedder may be another company's. Raises IndexUnavailable, ApiError; NotFound if the session is deleted
    meanwhile."""
    quotas = _quotas(store, request)
    if list(request.parts) == [pb.RECALL_PART_STABLE]:
        response, stable = pb.RecallResponse(), await _stable(store, space, request)
    else:
        response, stable = await asyncio.gather(
            _for_query(store, space, request, quotas, withhold_secrets), _stable(store, space, request)
        )
    # Not stored for repeated requests: a stored text must not outlive the memories that it shows.
    response.stable_text = stable
    response.stable_tokens = count(stable)
    return response


async def _stable(store: Store, space: Space, request: pb.RecallRequest) -> str:
    """Returns the stable part; empty if it was not asked for."""
    if pb.RECALL_PART_STABLE not in request.parts:
        return ""
    return await store.database.read(
        recall_stable.read, space, store.registry, request.stable_budget or recall_stable.BUDGET
    )


async def _for_query(
    store: Store,
    space: Space,
    request: pb.RecallRequest,
    quotas: Mapping[str, Quota],
    withhold_secrets: bool,
) -> pb.RecallResponse:
    """Returns the part for the query."""
    if not request.session:
        if not request.query.strip():
            raise invalid("query", "is empty, and so is the session", "Say what to look for, or name a session")
        return await _recall_without_session(store, space, request, quotas)
    name = session_id("session", request.session, space.user)
    before = await find_answer(store.database, space, request, pb.RecallResponse)
    if before is not None:
        return before
    try:
        session = await _session(store, space, name, request, withhold_secrets)
    except NotFound:
        # An agent may recall before the first message, which creates the session: it has received nothing yet.
        return (
            await _recall_without_session(store, space, request, quotas)
            if request.query.strip()
            else pb.RecallResponse()
        )
    if not session.query:
        return pb.RecallResponse()
    answer, results = await _search(store, space, request, quotas, session)

    async def work(tx: Tx) -> pb.RecallResponse:
        now = await recalled.standing(tx, space, name)
        # The answer is stored: it must not restore what was erased after the search.
        gone = await recalled.gone(tx, space, (one.item for one in results))
        found = [one for one in results if one.item not in gone]
        levels: dict[str, Level] = {}
        if not request.repeat:
            given = await recalled.given(tx, space, name, now, (one.name for one in found))
            levels = {one.name: _level_before(one, given, session.shown) for one in found}
        packed = _packed(request, found, quotas, levels)
        told = {found[rank].name: Given(found[rank].version, how.level) for rank, how in packed.shown.items()}
        await recalled.keep(tx, space, name, now, told)
        return _response(space, request, answer, found, packed)

    return await mutate(store.database, space, request, pb.RecallResponse, work, session_id=name)


async def _recall_without_session(
    store: Store, space: Space, request: pb.RecallRequest, quotas: Mapping[str, Quota]
) -> pb.RecallResponse:
    """Returns the part for the query without a session: nothing is left out or recorded."""
    answer, found = await _search(store, space, request, quotas, _Session(request.query, {}, {}))
    return _response(space, request, answer, found, _packed(request, found, quotas, {}))


def _quotas(store: Store, request: pb.RecallRequest) -> dict[str, Quota]:
    quotas: dict[str, Quota] = {}
    for number, quota in enumerate(request.quotas):
        name, field = quota.memory_type, f"quotas[{number}].memory_type"
        if name not in (PASSAGES, SESSION_SKILLS.name) and name not in store.registry:
            raise invalid(field, f"is neither a memory type nor {PASSAGES}", "See ListMemoryTypes")
        if name in quotas:
            raise invalid(field, "has a quota already", "Give each type one quota")
        quotas[name] = Quota(quota.max_items, UNITS * quota.max_tokens)
    return quotas


async def _session(
    store: Store, space: Space, name: str, request: pb.RecallRequest, withhold_secrets: bool
) -> _Session:
    """Reads the session and determines the query. Raises NotFound."""

    async def read(tx: Tx, space: Space) -> tuple[list[str], _Session]:
        now = await recalled.standing(tx, space, name)
        query = request.query.strip()
        said = [] if query else await recalled.newest_of_user(tx, space, name, now, QUERY_MESSAGES)
        if request.repeat:
            return said, _Session(query, {}, {})
        shown = await recalled.shown(tx, space, name, now)
        return said, _Session(query, shown, await recalled.versions(tx, space, name, now))

    said, session = await store.database.read(read, space)
    return replace(session, query=await asyncio.to_thread(_query, said, withhold_secrets)) if said else session


def _query(said: Iterable[str], withhold_secrets: bool) -> str:
    """Returns the query from messages, each given as its parts in JSON."""
    query = "\n".join(filter(None, map(_words, said)))
    if withhold_secrets:
        start = query[: 2 * QUERY_CHARACTERS]
        is_cut = len(start) < len(query)
        query, _ = secrets.withhold(start)
        query = query[:-_SECRET_CHARACTERS] if is_cut else query
    return query[:QUERY_CHARACTERS].strip()


def _words(parts: str) -> str:
    """Returns the texts and image captions of a message."""
    said = (part["text"] if part["type"] == "text" else part.get("caption", "") for part in json.loads(parts))
    return " ".join(" ".join(said).split())


async def _search(
    store: Store, space: Space, request: pb.RecallRequest, quotas: Mapping[str, Quota], session: _Session
) -> tuple[FindAnswer, list[Result]]:
    """Returns the results, best first: more than an answer may have, because their lines decide which it has, and those
    that the session has received are left out."""
    budget = request.token_budget or BUDGET
    enough = min(request.limit or ENTRIES, MIN_RESULTS + budget // TOKENS_A_RESULT)
    enough += RESERVE if request.session else 0
    wanted = pb.FindMemoriesRequest(
        query=session.query,
        target_uri=request.target_uri,
        memory_types=request.memory_types,
        kinds=request.kinds,
        limit=enough,
        peers=request.peers,
        tags=request.tags,
        start_time=request.start_time if request.HasField("start_time") else None,
        end_time=request.end_time if request.HasField("end_time") else None,
        score_threshold=request.score_threshold if request.HasField("score_threshold") else None,
        min_revision=request.min_revision,
        min_relevance=request.min_relevance if request.HasField("min_relevance") else None,
    )
    # Passages have places of their own, so that they displace no memories.
    places = {PASSAGES: enough} if len(request.kinds) != 1 else {}
    answer = await search.search(
        store,
        space,
        wanted,
        known=session.knows if session.given or session.shown else None,
        quotas=places | {name: quota.items and quota.items + RESERVE for name, quota in quotas.items()},
        room=Room(Depth.FULL, _READ_BYTES, max(_READ_EACH_BYTES, _BYTES_A_TOKEN * budget)),
        rerank=True,
    )
    return answer, await asyncio.to_thread(
        recall_candidates.results,
        session.query,
        answer.results,
        budget,
        list(store.registry),
        store.finder.calibration_of(answer),
        await line_cosines.of_answer(store.database, space, answer),
    )


def _level_before(found: Result, given: Mapping[str, Given], shown: Mapping[tuple[str, int], int]) -> Level:
    """Returns the deepest level at which the session already got the current version."""
    before = given.get(found.name)
    level = Level(before.level) if before is not None and before.version == found.version else Level.NOT
    for deep in _SHOWN:
        at = shown.get((found.name, deep))
        if at is not None and isinstance(found.item, Memory) and found.item.updated_at <= at:
            level = max(level, deep)
    return level


def _packed(
    request: pb.RecallRequest, found: list[Result], quotas: Mapping[str, Quota], before: Mapping[str, Level]
) -> Packed:
    limited = {name for name, quota in quotas.items() if quota.tokens}
    return pack(
        # A quota counts the whole tokens of each entry.
        [one.candidate(before.get(one.name, Level.NOT), UNITS - 1 if one.type in limited else 0) for one in found],
        UNITS * _budget(request, found),
        limit=request.limit or ENTRIES,
        deepest=Level(request.max_level or Level.FULL),
        quotas=quotas,
        headings=_HEADINGS,
    )


def _budget(request: pb.RecallRequest, found: Iterable[Result]) -> int:
    """Returns the tokens of the answer: few if nothing relevant was found and the request has no filter."""
    budget = request.token_budget or BUDGET
    given = {field.name for field, _ in request.ListFields()}
    known = [one.relevance for one in found if one.relevance is not None]
    is_weak = bool(known) and max(known) < WEAK_RELEVANCE and not given & _NARROWING
    return min(budget, WEAK_BUDGET) if is_weak else budget


def _response(
    space: Space, request: pb.RecallRequest, answer: FindAnswer, found: list[Result], packed: Packed
) -> pb.RecallResponse:
    # In the order of the text, section by section.
    order = {section: number for number, section in enumerate(recall_text.HEADINGS)}
    told = sorted(packed.shown.items(), key=lambda one: (order[found[one[0]].section], one[0]))
    texts = [found[rank].text.shown(how) for rank, how in told]
    text = recall_text.whole((found[rank].section, text) for (rank, _), text in zip(told, texts, strict=True))
    return pb.RecallResponse(
        text=text,
        tokens=count(text),
        entries=[
            _entry(space.user, found[rank], how.level, text) for (rank, how), text in zip(told, texts, strict=True)
        ],
        omitted=pb.RecallOmitted(given=packed.given, over_quota=packed.over_quota, over_budget=packed.over_budget),
        revision=answer.revision,
        latest_revision=answer.latest_revision,
        pending_passages=answer.pending_passages,
        degraded=answer.degraded,
        pending_memories=answer.pending_memories,
    )


def _entry(user: str, found: Result, level: Level, text: str) -> pb.RecallEntry:
    item, text = found.item, text.removesuffix("\n")
    entry = pb.RecallEntry(
        level=pb.RecallLevel.ValueType(level),
        text=text,
        tokens=count(text),
        score=found.score,
        relevance=found.relevance,
        peer_id=item.peer_id,
    )
    if isinstance(item, Memory):
        entry.uri = item.uri
        entry.kind = pb.FOUND_KIND_MEMORY
        entry.memory_type = item.memory_type
        entry.mark = found.text.mark
        entry.version = item.version
        when = timestamp(item.updated_at if item.happened_at is None else item.happened_at)
    else:
        entry.uri = recall_text.passage_uri(user, item)
        entry.kind = pb.FOUND_KIND_PASSAGE
        entry.session = session_uri(user, item.session_id)
        entry.message_id = item.message_id
        entry.sequence = item.sequence
        when = timestamp(item.created_at)
    if when is not None:
        entry.time.CopyFrom(when)
    return entry
