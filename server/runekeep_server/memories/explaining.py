"""Explains why a memory or a message is, or is not, among the results of a search."""

from dataclasses import replace

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.documents.uris import parse
from runekeep_server.memories import search
from runekeep_server.protocol.errors import invalid
from runekeep_server.wire import memories as wire
from runekeep_server.wire.basics import canonical
from runekeep_storage.database import Space
from runekeep_storage.search.explaining import Outcome, Target
from runekeep_storage.search.found_texts import ROOM_FOR_ABSTRACTS
from runekeep_storage.store import Store

_OUTCOMES = {one: pb.SearchOutcome.Value(f"SEARCH_OUTCOME_{one.name}") for one in Outcome}
_FIELDS = {
    "uri_prefix": "target_uri",
    "fields": "filter",
    "since": "start_time",
    "until": "end_time",
    "at_revision": "as_of",
    "archived_by": "as_of",
}
"""Fields of FindRequest that have another name in the contract."""


async def explain(store: Store, space: Space, request: pb.ExplainSearchRequest) -> pb.ExplainSearchResponse:
    """Answers ExplainSearch. Raises IndexUnavailable, ApiError."""
    target = _target(space, request)
    wanted = replace(await search.prepare(store, space, request.search), room=ROOM_FOR_ABSTRACTS)
    found = await store.finder.explain(space, wanted, target)
    answer = search.relevant(store, found.answer, request.search.min_relevance)
    calibration = store.finder.calibration_of(answer)
    relevance = None if calibration is None else calibration.relevance
    outcome, excluded_by = found.outcome, [_FIELDS.get(name, name) for name in found.excluded_by]
    if found.document is not None and calibration is not None and request.search.min_relevance:
        below = found.document.score < calibration.score(request.search.min_relevance)
        if below and outcome in (Outcome.RETURNED, Outcome.OVER_LIMIT):
            outcome, excluded_by = Outcome.BELOW_MINIMUM, ["min_relevance"]
        elif below and outcome is Outcome.BELOW_MINIMUM:
            excluded_by.append("min_relevance")
    document, last = (
        None if one is None else wire.found_item(space.user, one, store.registry, explain=True, relevance=relevance)
        for one in (found.document, answer.results[-1] if answer.results else None)
    )
    if document is not None:
        _complete(document.detail, found.outcome)
    return pb.ExplainSearchResponse(
        outcome=_OUTCOMES[outcome],
        excluded_by=list(dict.fromkeys(excluded_by)),
        document=document,
        last=last,
        rank=found.rank,
        candidates=found.candidates,
        without_vector=found.without_vector and bool(found.answer.model),
        revision=answer.revision,
        latest_revision=answer.latest_revision,
        degraded=answer.degraded,
    )


def _complete(detail: pb.ScoreDetail, outcome: Outcome) -> None:
    """Corrects the detail of a document that the index did not score."""
    for part in detail.parts:
        if part.name == "sparse":
            # The score of its row lacks the IDF.
            detail.sparse_score = part.value
    if outcome is Outcome.NOT_A_CANDIDATE:
        # Its ranks lie beyond those of the candidates, nobody knows how far.
        detail.dense_rank = detail.sparse_rank = 0


def _target(space: Space, request: pb.ExplainSearchRequest) -> Target:
    uri = canonical("uri", request.uri, space.user)
    session = parse(uri).session
    if session is None and request.message_id:
        raise invalid("uri", "is no URI of a session", "Give viking://user/sessions/{session}, or leave out message_id")
    if session is not None and not request.message_id:
        raise invalid("message_id", "is missing", "Say which message of the session you mean")
    return Target(session_id=session, message_id=request.message_id) if session is not None else Target(uri)
