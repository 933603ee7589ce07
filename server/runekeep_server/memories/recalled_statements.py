"""Turns what Recall finds for a question into statements with their sources."""

from collections.abc import Sequence
from dataclasses import dataclass

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.memories.recall import recall
from runekeep_server.protocol.secret_scan import scan_for_secrets, withhold_all
from runekeep_storage.database import Space
from runekeep_storage.store import Store

TOKENS = 1500
"""Maximum tokens of the statements, as Recall counts them."""
MAX_CHARACTERS = 4000
"""Maximum characters of a statement, as in the contract."""


@dataclass(frozen=True, slots=True)
class RecalledStatements:
    """`response`: that of Recall, which says what is missing. `secrets_withheld`: number of secrets in the texts."""

    statements: Sequence[pb.AnswerStatement]
    response: pb.RecallResponse
    secrets_withheld: int = 0


async def recalled_statements(
    store: Store, space: Space, question: str, *, withhold_secrets: bool
) -> RecalledStatements:
    """Returns the statements, in the order of Recall. Raises IndexUnavailable. `withhold_secrets`: each secret in the
    texts is replaced by a note."""
    found = await recall(store, space, pb.RecallRequest(query=question, token_budget=TOKENS))
    entries = [(text, _source(entry)) for entry in found.entries if (text := _text(entry))]
    withheld = 0
    if withhold_secrets:
        scanned = await scan_for_secrets(withhold_all, [text for text, _ in entries])
        entries = [(text, source) for (text, _), (_, source) in zip(scanned, entries, strict=True)]
        withheld = sum(len(secrets) for _, secrets in scanned)
    return RecalledStatements(
        [pb.AnswerStatement(text=_whole_lines(text), sources=[source]) for text, source in entries], found, withheld
    )


def _text(entry: pb.RecallEntry) -> str:
    """Returns an entry without the sign of a list. Numbers of memories belong to the text of a Recall."""
    return entry.text.removeprefix("- ").removeprefix(f"[{entry.mark}] ").strip()


def _whole_lines(text: str) -> str:
    """Returns the first lines of the text that have room in a statement, and a mark if lines are left out. A longer
    line is cut."""
    if len(text) <= MAX_CHARACTERS:
        return text
    room = MAX_CHARACTERS - 2
    return (text[: room + 1].rpartition("\n")[0] or text[:room]) + "\n…"


def _source(entry: pb.RecallEntry) -> pb.AnswerSource:
    if entry.kind == pb.FOUND_KIND_MEMORY:
        return pb.AnswerSource(uri=entry.uri)
    return pb.AnswerSource(uri=entry.session, sequence=entry.sequence, message_id=entry.message_id)
