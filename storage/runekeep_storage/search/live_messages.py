"""Searches the messages of a session that are not in the index yet by their words, from their rows, so that a message
is found before any commit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runekeep_storage import message_rows
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.errors import NotFound
from runekeep_storage.index import sparse
from runekeep_storage.index.base import Hit, IndexHits, PointKind
from runekeep_storage.index.sparse import SparseVector
from runekeep_storage.indexing import passages
from runekeep_storage.memories.memories import LATEST
from runekeep_storage.records import Message
from runekeep_storage.search import ranking, statements
from runekeep_storage.search.ranking import Ranking
from runekeep_storage.sessions import sessions

PAGE = 500
PAGE_BYTES = 16 * 1024 * 1024
"""Maximum size of a page. A larger message is a page by itself."""
MAX_PAGES = 4
"""Maximum number of pages of one session that are searched; of more messages, the newest."""
MAX_CHARACTERS = 1_000_000
"""Maximum number of characters searched: once the pages hold that many, no further page is read. A million characters
take a quarter of a second (measured on two busy cores)."""


@dataclass(frozen=True, slots=True)
class Unindexed:
    """Messages that are not in the index. `messages`: oldest first; `indexed`: whether older ones are in the index;
    `lacking`: whether some are neither in the index nor here."""

    messages: list[Message]
    indexed: bool
    lacking: bool


@dataclass(frozen=True, slots=True)
class Worded:
    """A message with the term weights that the index would store for it."""

    message: Message
    words: dict[int, float]


async def unindexed(tx: Tx, space: Space, session_id: str) -> Unindexed:
    """Returns the messages of the session that are not in the index, at most MAX_PAGES pages. Raises NotFound."""
    row = await tx.fetchrow(statements.INDEXED_UP_TO, space.account, space.user, session_id)
    if row is None:
        raise NotFound("session", session_id)
    beside = row["waiting"] or row["archived_sequence"] + 1
    first, found, said = row["last_sequence"] + 1, list[Message](), 0
    for _ in range(MAX_PAGES):
        if first <= beside or said >= MAX_CHARACTERS:
            break
        last = first - 1
        first = await sessions.first_within(tx, space, session_id, max(beside, first - PAGE), last, PAGE_BYTES)
        page = await sessions.messages_between(tx, space, session_id, first, last)
        said += sum(len(passages.text_of(message)) for message in page)
        found = page + found
    return Unindexed(found, beside > 1, beside < first)


async def at(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> dict[int, Message]:
    """Returns the existing messages of a session by sequence."""
    found: dict[int, Message] = {}
    for some in filled(sequences):
        rows = await tx.fetch(statements.MESSAGES_AT, space.account, space.user, session_id, *some)
        found |= {one.sequence: one for one in map(message_rows.message, rows)}
    return found


async def ids_at(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> dict[int, str]:
    """Returns the ids of the existing messages of a session by sequence."""
    found: dict[int, str] = {}
    for some in filled(sequences):
        rows = await tx.fetch(statements.MESSAGE_IDS_AT, space.account, space.user, session_id, *some)
        found |= {row["sequence"]: row["message_id"] for row in rows}
    return found


def worded(messages: Iterable[Message]) -> list[Worded]:
    """Returns the messages that have terms. CPU-heavy, see MAX_CHARACTERS."""
    made = []
    for message in messages:
        vector = sparse.encode_document(passages.text_of(message))
        if vector.indices:
            made.append(Worded(message, dict(zip(vector.indices, vector.values, strict=True))))
    return made


def ranked(session_id: str, messages: Iterable[Worded], query: SparseVector, weights: Ranking) -> list[Message]:
    """Returns messages with a word of the query, best first, ranked like the sparse hits of a search. Words are
    weighted without IDF, which only the index knows."""
    scored = []
    for one in messages:
        words = tuple(one.words.get(index, 0.0) for index in query.indices)
        if any(words):
            scored.append((sum(words), words, one.message))
    scored.sort(key=lambda of: (-of[0], -of[2].sequence))
    # Equal scores are ranked by id. These ids put the newer message first.
    by_id = {f"{LATEST - message.sequence:020}": message for _, _, message in scored}
    hits = tuple(
        Hit(
            f"{LATEST - message.sequence:020}",
            score,
            PointKind.PASSAGE,
            "",
            1,
            message.sequence,
            session_id,
            message.sequence,
            words=words,
            laid=True,
        )
        for score, words, message in scored[: weights.candidates]
    )
    return [by_id[one.id] for one in ranking.rank(IndexHits(sparse=hits), weights)]
