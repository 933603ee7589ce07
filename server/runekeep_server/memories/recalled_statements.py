"""Turns what Recall finds for a question into statements with their sources."""

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.memories.recall import recall
from runekeep_storage.database import Space
from runekeep_storage.store import Store

TOKENS = 1500
"""Maximum tokens of the statements, as Recall counts them."""
MAX_CHARACTERS = 4000
"""Maximum characters of a statement, as in the contract."""


async def recalled_statements(store: Store, space: Space, question: str) -> list[pb.AnswerStatement]:
    """Returns the statements, in the order of Recall. Raises IndexUnavailable."""
    found = await recall(store, space, pb.RecallRequest(query=question, token_budget=TOKENS))
    return [
        pb.AnswerStatement(text=_text(entry)[:MAX_CHARACTERS], sources=[_source(entry)])
        for entry in found.entries
        if _text(entry)
    ]


def _text(entry: pb.RecallEntry) -> str:
    """Returns an entry without the sign of a list. Numbers of memories belong to the text of a Recall."""
    return entry.text.removeprefix("- ").removeprefix(f"[{entry.mark}] ").strip()


def _source(entry: pb.RecallEntry) -> pb.AnswerSource:
    if entry.kind == pb.FOUND_KIND_MEMORY:
        return pb.AnswerSource(uri=entry.uri)
    return pb.AnswerSource(uri=entry.session, sequence=entry.sequence, message_id=entry.message_id)
