"""Recall: what is worth telling a model now, within a budget, and not twice to one session.

The search runs outside of transactions. What a session is given is then chosen and kept in one, with the answer that a
repeat gets: so Recalls of one session come out as if one had followed the other, and none gives what another gave.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from runekeep.v1 import memory_service_pb2 as pb
from schemas import tokens
from schemas.merge import is_blank
from schemas.recalling import PASSAGES, Candidate, Level, Packed, Quota, pack
from schemas.session_skills import SESSION_SKILLS
from schemas.types import MemoryType
from schemas.uris import session_uri
from server import memory_search, recall_text
from server.errors import invalid
from server.mutations import answered, mutate
from server.wire.basics import session_id, timestamp
from storage import recalled
from storage.database import Space, Tx
from storage.find import FindAnswer, Found
from storage.found_texts import Depth, Room
from storage.index.base import Hit, PointKind
from storage.recalled import Given
from storage.records import Memory, Passage
from storage.store import Store

BUDGET = 2000
ENTRIES = 20
QUERY_MESSAGES = 3
"""What was said last makes a query of so many messages of the user, the newest first: embedders read the beginning."""
QUERY_CHARACTERS = 4000

_READ_BYTES = 64 * 1024 * 1024
"""Of memories that one Recall reads; of others behind them the abstracts."""
_READ_EACH_BYTES = 256 * 1024
_BYTES_A_TOKEN = 12
"""Of a memory that is read whole, for each token of the budget: four times what a text of so many tokens takes, for it
stands in its fields too, and blanks are not counted."""
_READ_AT = {Level.OVERVIEW: Depth.OVERVIEW, Level.FULL: Depth.FULL}

_SHOWN = (Level.URI, Level.ABSTRACT)
"""How deeply a context part shows a memory."""
_HEADINGS = {section: tokens.count(heading) for section, heading in recall_text.HEADINGS.items()}


@dataclass(frozen=True, slots=True)
class _Found:
    """A search result on its way into an answer. `name`: under which it is kept as given, with its `version`; `costs`:
    tokens of its texts."""

    item: Memory | Passage
    score: float
    name: str
    version: int
    texts: Mapping[Level, str]
    costs: Mapping[Level, int]

    @property
    def type(self) -> str:
        return self.item.memory_type if isinstance(self.item, Memory) else PASSAGES

    @property
    def section(self) -> str:
        return recall_text.MEMORIES if isinstance(self.item, Memory) else recall_text.SAID


@dataclass(frozen=True, slots=True)
class _Session:
    """What is known of a session before the search. `shown`: when its live messages came that show something, by URI
    and level; `given`: versions of what it was given before, by name."""

    query: str
    shown: Mapping[tuple[str, int], int]
    given: Mapping[str, int]

    def knows(self, hit: Hit) -> bool:
        """Whether it was told that. Of a memory that changed after it was shown this is not certain."""
        if hit.kind is PointKind.PASSAGE:
            return _passage_name(hit.session, hit.sequence) in self.given
        return self.given.get(hit.uri) == hit.version or any((hit.uri, level) in self.shown for level in _SHOWN)


async def recall(store: Store, space: Space, request: pb.RecallRequest) -> pb.RecallResponse:
    """Raises NotFound, IndexUnavailable, ApiError."""
    quotas = _quotas(store, request)
    if not request.session:
        if not request.query.strip():
            raise invalid("query", "is empty, and so is the session", "Say what to look for, or name a session")
        answer, found = await _search(store, space, request, quotas, _Session(request.query, {}, {}))
        return _response(space, request, answer, found, _packed(request, found, quotas, {}))
    name = session_id("session", request.session, space.user)
    before = await answered(store.database, space, request, pb.RecallResponse)
    if before is not None:
        return before
    session = await _session(store, space, name, request)
    if not session.query:
        raise invalid("query", "is empty, and the session has no live message of the user", "Say what to look for")
    answer, results = await _search(store, space, request, quotas, session)

    async def work(tx: Tx) -> pb.RecallResponse:
        now = await recalled.standing(tx, space, name)
        # The answer is kept: what was erased after the search must not come back with it.
        gone = await recalled.gone(tx, space, (one.item for one in results))
        found = [one for one in results if one.item not in gone]
        levels: dict[str, Level] = {}
        if not request.repeat:
            given = await recalled.given(tx, space, name, now, (one.name for one in found))
            levels = {one.name: _level_before(one, given, session.shown) for one in found}
        packed = _packed(request, found, quotas, levels)
        told = {found[rank].name: Given(found[rank].version, level) for rank, level in packed.levels.items()}
        await recalled.keep(tx, space, name, now, told)
        return _response(space, request, answer, found, packed)

    return await mutate(store.database, space, request, pb.RecallResponse, work, session_id=name)


def _quotas(store: Store, request: pb.RecallRequest) -> dict[str, Quota]:
    quotas: dict[str, Quota] = {}
    for number, quota in enumerate(request.quotas):
        name, field = quota.memory_type, f"quotas[{number}].memory_type"
        if name not in (PASSAGES, SESSION_SKILLS.name) and name not in store.registry:
            raise invalid(field, f"is neither a memory type nor {PASSAGES}", "See ListMemoryTypes")
        if name in quotas:
            raise invalid(field, "has a quota already", "Give each type one quota")
        quotas[name] = Quota(quota.max_items, quota.max_tokens)
    return quotas


async def _session(store: Store, space: Space, name: str, request: pb.RecallRequest) -> _Session:
    """Raises NotFound."""

    async def read(tx: Tx) -> tuple[list[str], _Session]:
        now = await recalled.standing(tx, space, name)
        query = request.query.strip()
        said = [] if query else await recalled.newest_of_user(tx, space, name, now, QUERY_MESSAGES)
        if request.repeat:
            return said, _Session(query, {}, {})
        shown = await recalled.shown(tx, space, name, now)
        return said, _Session(query, shown, await recalled.versions(tx, space, name, now))

    said, session = await store.database.read(read)
    return replace(session, query=await asyncio.to_thread(_query, said)) if said else session


def _query(said: Iterable[str]) -> str:
    """What messages say, each given by its parts as JSON."""
    return "\n".join(filter(None, map(_words, said)))[:QUERY_CHARACTERS].strip()


def _words(parts: str) -> str:
    """What a message says in text, and in captions of images."""
    said = (part["text"] if part["type"] == "text" else part.get("caption", "") for part in json.loads(parts))
    return " ".join(" ".join(said).split())


async def _search(
    store: Store, space: Space, request: pb.RecallRequest, quotas: Mapping[str, Quota], session: _Session
) -> tuple[FindAnswer, list[_Found]]:
    """What fits the request, best first, with enough behind it for what may be left out."""
    enough = request.limit or ENTRIES
    wanted = pb.FindMemoriesRequest(
        query=session.query,
        target_uri=request.target_uri,
        memory_types=request.memory_types,
        kinds=request.kinds,
        limit=_more(enough) if request.session else enough,
        peers=request.peers,
        tags=request.tags,
        start_time=request.start_time if request.HasField("start_time") else None,
        end_time=request.end_time if request.HasField("end_time") else None,
        score_threshold=request.score_threshold if request.HasField("score_threshold") else None,
        min_revision=request.min_revision,
    )
    answer = await memory_search.search(
        store,
        space,
        wanted,
        known=session.knows if session.given or session.shown else None,
        quotas={name: _more(quota.items) if quota.items else 0 for name, quota in quotas.items()},
        room=Room(Depth.FULL, _READ_BYTES, max(_READ_EACH_BYTES, _BYTES_A_TOKEN * (request.token_budget or BUDGET))),
    )
    blank = {type.name: type for type in store.registry if type.has_initial}
    return answer, await asyncio.to_thread(_all_found, space.user, answer, request.token_budget or BUDGET, blank)


def _more(items: int) -> int:
    """Others may be told the best of what is found meanwhile; and an answer counts what is over a quota."""
    return items + max(items, ENTRIES)


def _all_found(user: str, answer: FindAnswer, budget: int, blank: Mapping[str, MemoryType]) -> list[_Found]:
    """`blank`: types that make memories by themselves; one that nobody has filled in yet is not told."""
    return [_found(user, one, budget) for one in answer.results if not _is_blank(one, blank)]


def _is_blank(found: Found, blank: Mapping[str, MemoryType]) -> bool:
    item = found.item
    return (
        isinstance(item, Memory)
        and item.memory_type in blank
        and found.depth is Depth.FULL
        and is_blank(blank[item.memory_type], item.content)
    )


def _found(user: str, found: Found, budget: int) -> _Found:
    """What takes more than the whole budget is not written out."""
    item, score = found.item, found.score
    if isinstance(item, Memory):
        name, version, texts = item.uri, item.version, recall_text.of_memory(item, budget)
        # What was not read is longer than any answer.
        texts |= {level: None for level, depth in _READ_AT.items() if depth > found.depth}
    else:
        name, version = _passage_name(item.session_id, item.sequence), item.created_at
        texts = recall_text.of_passage(user, item, budget)
    costs = {level: budget + 1 if text is None else tokens.count(text) for level, text in texts.items()}
    return _Found(item, score, name, version, {level: text or "" for level, text in texts.items()}, costs)


def _passage_name(session: str | None, sequence: int | None) -> str:
    return f"passage:{session}:{sequence}"


def _level_before(found: _Found, given: Mapping[str, Given], shown: Mapping[tuple[str, int], int]) -> Level:
    """How deeply the session was told it before, as it is now."""
    before = given.get(found.name)
    level = Level(before.level) if before is not None and before.version == found.version else Level.NOT
    for deep in _SHOWN:
        at = shown.get((found.name, deep))
        if at is not None and isinstance(found.item, Memory) and found.item.updated_at <= at:
            level = max(level, deep)
    return level


def _packed(
    request: pb.RecallRequest, found: list[_Found], quotas: Mapping[str, Quota], before: Mapping[str, Level]
) -> Packed:
    return pack(
        [Candidate(one.type, one.section, one.costs, before.get(one.name, Level.NOT)) for one in found],
        request.token_budget or BUDGET,
        limit=request.limit or ENTRIES,
        deepest=Level(request.max_level or Level.FULL),
        quotas=quotas,
        headings=_HEADINGS,
    )


def _response(
    space: Space, request: pb.RecallRequest, answer: FindAnswer, found: list[_Found], packed: Packed
) -> pb.RecallResponse:
    # As the text has them: sections one behind the other.
    order = {section: number for number, section in enumerate(recall_text.HEADINGS)}
    told = sorted(packed.levels.items(), key=lambda one: (order[found[one[0]].section], one[0]))
    text = recall_text.whole((found[rank].section, found[rank].texts[level]) for rank, level in told)
    return pb.RecallResponse(
        text=text,
        tokens=tokens.count(text),
        entries=[_entry(space.user, found[rank], level) for rank, level in told],
        omitted=pb.RecallOmitted(given=packed.given, over_quota=packed.over_quota, over_budget=packed.over_budget),
        revision=answer.revision,
        latest_revision=answer.latest_revision,
        pending_passages=answer.pending_passages,
        degraded=answer.degraded,
        pending_memories=answer.pending_memories,
    )


def _entry(user: str, found: _Found, level: Level) -> pb.RecallEntry:
    item, text = found.item, found.texts[level].removesuffix("\n")
    entry = pb.RecallEntry(
        level=pb.RecallLevel.ValueType(level),
        text=text,
        tokens=tokens.count(text),
        score=found.score,
        peer_id=item.peer_id,
    )
    if isinstance(item, Memory):
        entry.uri = item.uri
        entry.kind = pb.FOUND_KIND_MEMORY
        entry.memory_type = item.memory_type
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
