"""Converts responses about memories to the shapes in `results`."""

from typing import cast

from runekeep.client.memories.results import SearchResults
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import memory_service_pb2


def search_results_from_wire(wire: memory_service_pb2.FindMemoriesResponse) -> SearchResults:
    answer = to_json(wire)
    results = []
    for item in answer["results"]:
        kind = "memory" if "memory" in item else "passage"
        shared = {"kind": kind, "score": item["score"], "relevance": item["relevance"]}
        result = {**shared, **item[kind], "detail": item["detail"]}
        results.append(result if kind == "passage" else {**result, "view": item["view"]})
    return cast(SearchResults, {**answer, "results": results})
