"""Memories to be recalled, and what a Recall over the wire tells."""

from typing import Any

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.recall_tokens import count
from tests.support.callers import Caller, said
from tests.support.changes import put, written

URI, ABSTRACT, OVERVIEW, FULL = range(1, 5)


def preference(topic: str, base: int = 0, *, more: int = 60) -> pb.MemoryMutation:
    """About tea, with an abstract of some 30, an overview of some 200 and a content of some 700 characters."""
    return put(
        "preferences",
        base,
        topic=f"Tea {topic}",
        content=f"All about {topic} tea.\n\n" + "Every word of it. " * more,
        abstract=f"Likes {topic} tea.",
        overview=f"# {topic} tea\n" + "Likes it much. " * 12,
    )


async def ready(caller: Caller, *topics: str) -> int:
    """Writes memories and waits until they are found; the revision."""
    revision: int = (await written(caller, *(preference(topic) for topic in topics))).revision
    await caller.searchable()
    return revision


async def recall(caller: Caller, query: str = "tea", **fields: Any) -> pb.RecallResponse:
    answer: pb.RecallResponse = await caller.memories.Recall(pb.RecallRequest(query=query, **fields))
    assert answer.tokens == count(answer.text) <= (fields.get("token_budget") or 2000)
    assert len(answer.entries) <= (fields.get("limit") or 40)
    place = 0
    for entry in answer.entries:
        place = answer.text.index(entry.text, place) + len(entry.text)
        assert entry.tokens == count(entry.text) > 0
    return answer


def names(answer: pb.RecallResponse) -> dict[str, int]:
    """Levels by the last part of the topic, or of a passage by its words."""
    return {
        entry.uri.removesuffix(".md").rsplit(" ")[-1]
        if entry.memory_type
        else entry.text.partition(": ")[2]: entry.level
        for entry in answer.entries
    }


def omitted(answer: pb.RecallResponse) -> tuple[int, int, int]:
    return answer.omitted.given, answer.omitted.over_quota, answer.omitted.over_budget


async def in_session(caller: Caller, *words: str) -> str:
    session = await caller.session()
    await caller.add(session, *(said(word) for word in words or ("What about tea?",)))
    return session
