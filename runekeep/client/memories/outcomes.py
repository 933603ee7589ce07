"""What the outcomes of ExplainSearch mean, for people."""

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


def describe_outcome(outcome: str, excluded_by: list[str]) -> str:
    """Returns the sentence for an outcome, with the names of the fields that exclude the document."""
    sentence = OUTCOMES.get(outcome, f"Unknown outcome: {outcome}.")
    return f"{sentence} {', '.join(excluded_by)}." if sentence.endswith(":") else sentence
