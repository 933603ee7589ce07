"""Search with the parts of each score, and why a memory is not among the results."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.responses import Response

from runekeep import InvalidArgumentError, RunekeepError
from runekeep.studio.http.visit import Visit
from runekeep.studio.pages.memories import at_revision, memory_types
from runekeep.v1 import memory_service_pb2

MAX_RESULTS = 100
DEFAULT_RESULTS = 10
KINDS = {"memories": memory_service_pb2.FOUND_KIND_MEMORY, "passages": memory_service_pb2.FOUND_KIND_PASSAGE}
_FILTERS = {
    "target_uri": "below",
    "memory_types": "type",
    "kinds": "kind",
    "peers": "peer",
    "tags": "tag",
    "start_time": "from",
    "end_time": "before",
    "sessions": "session",
}
"""Fields of the request, and what the form calls them."""


async def search(visit: Visit) -> Response:
    types = await memory_types(visit)
    context: dict[str, object] = {"types": list(types), "answer": None, "why": None, "limit": _limit(visit)}
    if visit.query("q"):
        request = request_of(visit)
        context["answer"] = await visit.call(visit.stubs.memories.FindMemories, request)
        if visit.query("why"):
            context["why"] = await _explain(visit, request, visit.query("why"))
    return visit.render("search.html", context)


def request_of(visit: Visit) -> memory_service_pb2.FindMemoriesRequest:
    """Returns the search that the form describes. Raises InvalidArgumentError for a date that is none."""
    kind = KINDS.get(visit.query("kind"))
    return memory_service_pb2.FindMemoriesRequest(
        query=visit.query("q"),
        target_uri=visit.query("below"),
        memory_types=_listed(visit.query("type")),
        kinds=[kind] if kind else [],
        peers=_listed(visit.query("peer")),
        tags=_listed(visit.query("tag")),
        sessions=_listed(visit.query("session")),
        start_time=_day(visit, "from"),
        end_time=_day(visit, "before"),
        as_of=at_revision(visit.number("as_of")),
        limit=_limit(visit),
        view=memory_service_pb2.MEMORY_VIEW_ABSTRACT,
        explain=True,
    )


@dataclass(slots=True)
class Explanation:
    """Why a memory is not among the results. `rank`: its place without the limit, 0 if it has none."""

    uri: str
    exists: bool = False
    deleted: bool = False
    problem: str = ""
    rank: int = 0
    score: float = 0.0
    lowest: float = 0.0
    """Score of the last result that was returned."""
    filters: tuple[str, ...] = ()
    """Filters of the form that exclude it."""
    alone: memory_service_pb2.FoundItem | None = None
    """What the search finds if it looks at nothing else."""
    behind: bool = False
    """Whether the index does not hold everything yet."""


async def _explain(visit: Visit, request: memory_service_pb2.FindMemoriesRequest, uri: str) -> Explanation:
    """Asks the same again: for more results, without each of the filters, and for this memory alone."""
    why = Explanation(uri)
    try:
        found = await visit.call(visit.stubs.memories.GetMemory, memory_service_pb2.GetMemoryRequest(uri=uri))
    except RunekeepError as error:
        why.problem = error.message
        return why
    why.uri, why.exists, why.deleted = found.memory.uri, True, found.memory.deleted
    wide = _copy(request)
    wide.limit = MAX_RESULTS
    answer = await visit.call(visit.stubs.memories.FindMemories, wide)
    # Without the reranker the order is another one, but nothing is missing.
    degraded = set(answer.degraded) - {"reranker"}
    why.behind = bool(answer.revision < answer.latest_revision or answer.pending_memories or degraded)
    scores = [item.score for item in answer.results]
    why.lowest = scores[: request.limit][-1] if scores else 0.0
    for rank, item in enumerate(answer.results, 1):
        if item.memory.uri == why.uri:
            why.rank, why.score = rank, item.score
            return why
    why.filters = tuple([name async for name in _excluding(visit, wide, why.uri)])
    alone = memory_service_pb2.FindMemoriesRequest(
        query=request.query, target_uri=why.uri, as_of=at_revision(visit.number("as_of")), limit=1, explain=True
    )
    only = await visit.call(visit.stubs.memories.FindMemories, alone)
    why.alone = next((item for item in only.results if item.memory.uri == why.uri), None)
    return why


async def _excluding(
    visit: Visit, request: memory_service_pb2.FindMemoriesRequest, uri: str
) -> AsyncGenerator[str, None]:
    """Yields the filters that exclude the memory: it is searched alone, with one filter at a time."""
    given_fields = {field.name for field, _ in request.ListFields()}
    for field, name in _FILTERS.items():
        if field not in given_fields:
            continue
        value = getattr(request, field)
        if field == "target_uri":
            if uri != value and not uri.startswith(value.rstrip("/") + "/"):
                yield name
            continue
        one = memory_service_pb2.FindMemoriesRequest(query=request.query, target_uri=uri, limit=1)
        if field.endswith("_time"):
            getattr(one, field).CopyFrom(value)
        else:
            getattr(one, field).extend(value)
        answer = await visit.call(visit.stubs.memories.FindMemories, one)
        if not any(item.memory.uri == uri for item in answer.results):
            yield name


def _copy(request: memory_service_pb2.FindMemoriesRequest) -> memory_service_pb2.FindMemoriesRequest:
    made = memory_service_pb2.FindMemoriesRequest()
    made.CopyFrom(request)
    return made


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _limit(visit: Visit) -> int:
    return min(visit.number("limit") or DEFAULT_RESULTS, MAX_RESULTS)


def _day(visit: Visit, name: str) -> Timestamp | None:
    text = visit.query(name)
    if not text:
        return None
    try:
        day = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise InvalidArgumentError(
            f"Invalid `{name}`: expected a day such as 2026-11-27.", code="INVALID_ARGUMENT", reason="FIELD_INVALID"
        ) from None
    made = Timestamp()
    made.FromDatetime(day)
    return made
