"""Messages of a session that are not in the index yet, searched by their words from their rows: what was said a moment
ago is found before any commit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage import message_rows, passages, ranking, sessions, sparse
from storage.database import Space, Tx
from storage.errors import NotFound
from storage.index.base import Hit, IndexHits, PointKind
from storage.leftovers import without
from storage.memories import LATEST
from storage.ranking import Ranking
from storage.records import Message
from storage.sparse import SparseVector
from storage.statement_lists import filled, places

PAGE = 500
PAGE_BYTES = 16 * 1024 * 1024
"""Of a page; a message that is larger is one by itself."""
MOST_PAGES = 4
"""Of messages of one session that are searched so; of more, the newest."""
MOST_CHARACTERS = 1_000_000
"""What these pages say; when they have said so much, no further one is read. Words take their time: a million
characters a quarter of a second (measured on two busy cores)."""


@dataclass(frozen=True, slots=True)
class Unindexed:
    """`messages`: oldest first. `indexed`: whether there are older ones, which the index holds. `lacking`: whether
    there are some that neither the index nor this holds."""

    messages: list[Message]
    indexed: bool
    lacking: bool


@dataclass(frozen=True, slots=True)
class Worded:
    """A message with the terms of what it says, as the index would have them."""

    message: Message
    words: dict[int, float]


async def unindexed(tx: Tx, space: Space, session_id: str) -> Unindexed:
    """What the session holds beside the index, at most MOST_PAGES of messages. Raises NotFound."""
    row = await tx.fetchrow(
        "SELECT last_sequence, archived_sequence, (SELECT MIN(first_sequence) FROM archives WHERE account = $1"
        " AND user_id = $2 AND session_id = $3 AND passages_indexed = 0) AS waiting"
        " FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    if row is None:
        raise NotFound("session", session_id)
    beside = row["waiting"] or row["archived_sequence"] + 1
    first, found, said = row["last_sequence"] + 1, list[Message](), 0
    for _ in range(MOST_PAGES):
        if first <= beside or said >= MOST_CHARACTERS:
            break
        last = first - 1
        first = await sessions.first_within(tx, space, session_id, max(beside, first - PAGE), last, PAGE_BYTES)
        page = await sessions.messages_between(tx, space, session_id, first, last)
        said += sum(len(passages.text_of(message)) for message in page)
        found = page + found
    return Unindexed(found, beside > 1, beside < first)


async def at(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> dict[int, Message]:
    """Messages of a session by their sequence, as far as they are there."""
    found: dict[int, Message] = {}
    for some in filled(sequences):
        rows = await tx.fetch(
            "SELECT * FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
            f" AND sequence IN ({places(4)}) AND erased = 0{without('messages')}",
            space.account,
            space.user,
            session_id,
            *some,
        )
        found |= {one.sequence: one for one in map(message_rows.message, rows)}
    return found


def worded(messages: Iterable[Message]) -> list[Worded]:
    """Those that say something. Takes time, see MOST_CHARACTERS."""
    made = []
    for message in messages:
        vector = sparse.encode_document(passages.text_of(message))
        if vector.indices:
            made.append(Worded(message, dict(zip(vector.indices, vector.values, strict=True))))
    return made


def ranked(session_id: str, messages: Iterable[Worded], query: SparseVector, weights: Ranking) -> list[Message]:
    """Messages with a word of the query, best first, ranked as the search ranks what its leg of words found. Words are
    weighed without IDF, which only the index knows."""
    scored = []
    for one in messages:
        words = tuple(one.words.get(index, 0.0) for index in query.indices)
        if any(words):
            scored.append((sum(words), words, one.message))
    scored.sort(key=lambda of: (-of[0], -of[2].sequence))
    # Equal ones are ranked by their ids: the newer first.
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
