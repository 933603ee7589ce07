"""Search with the parts of each score, and why a memory is not among the results."""

import asyncio
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.responses import Response

from runekeep import InvalidArgumentError
from runekeep.client.memories.outcomes import describe_degraded, describe_outcome
from runekeep.client.wire.proto_json import enum_word
from runekeep.studio.http.visit import Visit
from runekeep.studio.pages.memories import at_revision, memory_types
from runekeep.v1 import common_pb2, memory_service_pb2

MAX_RESULTS = 100
DEFAULT_RESULTS = 10
KINDS = {"memories": memory_service_pb2.FOUND_KIND_MEMORY, "passages": memory_service_pb2.FOUND_KIND_PASSAGE}
_FILTERS = ("type", "kind", "peer", "tag", "from", "before", "session", "below", "field", "as_of", "relevance")
"""Filters of the form."""
_FORM_NAMES = {
    "target_uri": "below",
    "memory_types": "type",
    "kinds": "kind",
    "peers": "peer",
    "tags": "tag",
    "start_time": "from",
    "end_time": "before",
    "sessions": "session",
    "filter": "field",
    "as_of": "as of revision",
    "min_relevance": "least relevance",
    "limit": "results",
}
"""What the form calls the fields of the request."""


async def search(visit: Visit) -> Response:
    request = request_of(visit) if visit.query("q") else None
    types, answer, why = await asyncio.gather(
        memory_types(visit),
        _find(visit, request),
        _explain(visit, request if visit.query("why") else None),
    )
    context = {
        "types": list(types),
        "answer": answer,
        "degraded": [describe_degraded(part) for part in answer.degraded] if answer else [],
        "limit": _limit(visit),
        "filters": _FILTERS,
        "filtered": any(map(visit.query, _FILTERS)),
        **why,
    }
    return visit.render("search.html", context)


def request_of(visit: Visit) -> memory_service_pb2.FindMemoriesRequest:
    """Returns the search that the form describes. Raises InvalidArgumentError for a value of a wrong form."""
    kind = KINDS.get(visit.query("kind"))
    return memory_service_pb2.FindMemoriesRequest(
        query=visit.query("q"),
        target_uri=visit.query("below"),
        memory_types=_listed(visit.query("type")),
        kinds=[kind] if kind else [],
        peers=_listed(visit.query("peer")),
        tags=_listed(visit.query("tag")),
        sessions=_listed(visit.query("session")),
        filter=_field(visit),
        start_time=_day(visit, "from"),
        end_time=_day(visit, "before"),
        as_of=at_revision(visit.number("as_of")),
        limit=_limit(visit),
        view=memory_service_pb2.MEMORY_VIEW_ABSTRACT,
        explain=True,
        min_relevance=_relevance(visit),
    )


async def _find(
    visit: Visit, request: memory_service_pb2.FindMemoriesRequest | None
) -> memory_service_pb2.FindMemoriesResponse | None:
    return None if request is None else await visit.call(visit.stubs.memories.FindMemories, request)


async def _explain(visit: Visit, request: memory_service_pb2.FindMemoriesRequest | None) -> dict[str, object]:
    """Returns what the template shows of why a document is or is not found."""
    if request is None:
        return {"why": None}
    asked = memory_service_pb2.ExplainSearchRequest(
        search=request, uri=visit.query("why"), message_id=visit.query("message")
    )
    why = await visit.call(visit.stubs.memories.ExplainSearch, asked)
    outcome = enum_word(memory_service_pb2.SearchOutcome, why.outcome) or ""
    excluded_by = [_FORM_NAMES.get(name, name) for name in why.excluded_by]
    return {"why": why, "outcome": outcome, "sentence": describe_outcome(outcome, excluded_by)}


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _limit(visit: Visit) -> int:
    return min(visit.number("limit") or DEFAULT_RESULTS, MAX_RESULTS)


def _field(visit: Visit) -> dict[str, common_pb2.FieldValue]:
    """Returns the field of memories that the form asks for, as `name=text`."""
    text = visit.query("field")
    name, equals, value = (part.strip() for part in text.partition("="))
    if not text:
        return {}
    if not name or not equals:
        raise _refused("Invalid `field`: expected a field and its text, such as topic=Tea.")
    return {name: common_pb2.FieldValue(string_value=value)}


def _refused(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="INVALID_ARGUMENT", reason="FIELD_INVALID")


def _relevance(visit: Visit) -> float | None:
    text = visit.query("relevance")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise _refused("Invalid `relevance`: expected a number from 0 to 1.") from None


def _day(visit: Visit, name: str) -> Timestamp | None:
    text = visit.query(name)
    if not text:
        return None
    try:
        day = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise _refused(f"Invalid `{name}`: expected a day such as 2026-11-27.") from None
    made = Timestamp()
    made.FromDatetime(day)
    return made
