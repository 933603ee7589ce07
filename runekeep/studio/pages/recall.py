"""Recall: what a model would be told within a budget of tokens, how deeply, and what is left out."""

import asyncio

from starlette.responses import Response

from runekeep.studio.http.visit import Visit
from runekeep.studio.pages.search import request_of
from runekeep.v1 import memory_service_pb2

DEFAULT_BUDGET = 1000
MIN_BUDGET = 50
MAX_BUDGET = 8000
CANDIDATES = 50
LEVELS = {
    "full": memory_service_pb2.RECALL_LEVEL_FULL,
    "overview": memory_service_pb2.RECALL_LEVEL_OVERVIEW,
    "abstract": memory_service_pb2.RECALL_LEVEL_ABSTRACT,
    "uri": memory_service_pb2.RECALL_LEVEL_URI,
}


async def recall(visit: Visit) -> Response:
    context: dict[str, object] = {
        "budget": _budget(visit),
        "max_budget": MAX_BUDGET,
        "level": _level(visit),
        "levels": list(LEVELS),
        "answer": await _recall(visit) if visit.query("q") else None,
    }
    return visit.render("recall_result.html" if visit.partial else "recall.html", context)


async def left_out(visit: Visit) -> Response:
    """A piece of the page: what a search finds for the same query, and the recall does not tell."""
    wide = request_of(visit)
    wide.limit = CANDIDATES
    answer, found = await asyncio.gather(_recall(visit), visit.call(visit.stubs.memories.FindMemories, wide))
    told = {(entry.uri, entry.message_id) for entry in answer.entries}
    items = [
        item for item in found.results if (item.memory.uri or item.passage.uri, item.passage.message_id) not in told
    ]
    return visit.render("recall_left_out.html", {"items": items})


async def _recall(visit: Visit) -> memory_service_pb2.RecallResponse:
    # Without a session, so that to look at a recall does not count as told.
    request = memory_service_pb2.RecallRequest(
        query=visit.query("q"),
        token_budget=_budget(visit),
        max_level=LEVELS[_level(visit)],
        parts=[memory_service_pb2.RECALL_PART_STABLE, memory_service_pb2.RECALL_PART_QUERY],
    )
    answer: memory_service_pb2.RecallResponse = await visit.call(visit.stubs.memories.Recall, request)
    return answer


def _budget(visit: Visit) -> int:
    return min(max(visit.number("budget", DEFAULT_BUDGET), MIN_BUDGET), MAX_BUDGET)


def _level(visit: Visit) -> str:
    return visit.query("level") if visit.query("level") in LEVELS else "full"
