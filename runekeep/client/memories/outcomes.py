"""Describes outcomes of ExplainSearch and degraded parts of a search in sentences, for people and models."""

from typing import Final

OUTCOMES: Final = {
    "not_found": "It does not exist.",
    "deleted": "It is deleted.",
    "not_archived": "The message is not archived yet: commit its session.",
    "not_searchable": "The message has no words, or was erased.",
    "not_indexed": "It is not in the index yet: search again in a few seconds.",
    "filtered": "Filters exclude it:",
    "returned": "It is among the results.",
    "no_match": "The query does not match it, neither by meaning nor by words.",
    "not_a_candidate": "Too many others are nearer: narrow the search, or use its own words.",
    "below_minimum": "It is below a minimum:",
    "over_limit": "Better results take all places: ask for more results, or in its own words.",
}
"""Sentences by outcome. Those that end with a colon go on with `excluded_by`."""

_DEGRADED: Final = {
    "dense": "The embedder did not answer: everything is found by its words alone.",
    "rebuilding": "The user is being written to the index: messages may be missing.",
    "reranker": "The reranker did not answer: the results are in the order without it.",
    "vectors": "Some memories or messages are found by their words alone: their vectors are on the way.",
}


def describe_degraded(part: str) -> str:
    """Returns the sentence for a part of a search that could not run in full: an item of `degraded`."""
    return _DEGRADED.get(part, f"A part of the search could not run in full: {part}.")


def describe_outcome(outcome: str, excluded_by: list[str]) -> str:
    """Returns the sentence for an outcome, with the names of the fields that exclude the document."""
    sentence = OUTCOMES.get(outcome, f"Unknown outcome: {outcome}.")
    return f"{sentence} {', '.join(excluded_by)}." if sentence.endswith(":") else sentence
