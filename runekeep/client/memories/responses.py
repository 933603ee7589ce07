"""Converts responses about memories to what `results` declares."""

from typing import Any

from runekeep.client.memories.results import SearchExplanation, SearchResults
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import memory_service_pb2


def search_results_from_wire(wire: memory_service_pb2.FindMemoriesResponse) -> SearchResults:
    answer = to_json(wire)
    return SearchResults({**answer, "results": [_flat(item) for item in answer["results"]]})


def search_explanation_from_wire(wire: memory_service_pb2.ExplainSearchResponse) -> SearchExplanation:
    answer = to_json(wire)
    found = {name: answer[name] and _flat(answer[name]) for name in ("document", "last")}
    return SearchExplanation({**answer, **found})


def _flat(item: dict[str, Any]) -> dict[str, Any]:
    kind = "memory" if "memory" in item else "passage"
    shared = {"kind": kind, "score": item["score"], "relevance": item["relevance"]}
    result = {**shared, **item[kind], "detail": item["detail"]}
    return result if kind == "passage" else {**result, "view": item["view"]}
