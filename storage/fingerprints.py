"""Fingerprints of turns: merged where they are stored, numbered as they change, and read by turn, by change, by signal.

Every change takes the next number of its session, `turn_version`, and keeps it as its `version`: what is newer than a
number is told without a clock. A change of nothing takes none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from schemas.turns import fingerprint as rules
from schemas.turns.fingerprint import LISTS, MOST_BYTES, Fingerprint, Promotion
from schemas.turns.stored import ASSISTANT_SIGNAL, FINGERPRINT, fingerprint_tags, signal_tag
from schemas.turns.window import DAYS, DELTA, DELTA_SHOWN
from storage import turn_artifacts, turns
from storage.database import Space, Tx
from storage.errors import FingerprintTooLong, NotFound
from storage.leftovers import without
from storage.records import Artifact, Turn
from storage.turn_artifacts import LATEST

AGE = DAYS * 86_400 * 1_000_000
"""Microseconds after which a fingerprint is neither a change to look at nor a promotion to remember."""

_ADDED = ("objective", *LISTS, "topics", "conversation_title", "ctx_retrieval_queries")
"""What extractors may add to a fingerprint, what is needed most first."""


async def submit(tx: Tx, space: Space, turn: Turn, new: Fingerprint) -> Fingerprint:
    """Merges what a caller says of the turn with what is there; the fingerprint as it is now.

    A title counts only in the first turn of the session, whose own title it becomes if that has none. Raises
    FingerprintTooLong when both together have more than MOST_BYTES.
    """
    there = await _of_turn(tx, space, turn)
    joined = rules.merge(there or Fingerprint(turn.turn_id), await _titled(tx, space, turn, new))
    joined = _dated(joined, turn)
    if (size := _size(joined)) > MOST_BYTES:
        raise FingerprintTooLong(turn.turn_id, size, MOST_BYTES)
    await _keep(tx, space, turn, there, joined)
    return joined


async def fill(tx: Tx, space: Space, turn: Turn, there: Fingerprint | None, extracted: Fingerprint) -> bool:
    """Adds what an extractor found out where nothing is there; whether that changed anything.

    `there`: the turn's fingerprint, as this transaction has read it. What is added speaks of the turn's own time, not
    of that at which the extractor looked. Each part that would make it longer than MOST_BYTES is left out.
    """
    before = there or Fingerprint(turn.turn_id)
    filled = rules.fill(before, await _titled(tx, space, turn, replace(extracted, made_at=0)))
    joined = _within_bounds(_dated(before, turn), _dated(filled, turn))
    if there is None and joined.is_empty and not joined.conversation_title:
        # Of a title alone nothing is left, unless the turn is the session's first.
        return False
    return await _keep(tx, space, turn, there, joined)


def _within_bounds(before: Fingerprint, filled: Fingerprint) -> Fingerprint:
    if _size(filled) <= MOST_BYTES:
        return filled
    taken = before
    for name in _ADDED:
        more = replace(taken, **{name: getattr(filled, name)})
        if _size(more) <= MOST_BYTES:
            taken = more
    return taken


def _dated(fingerprint: Fingerprint, turn: Turn) -> Fingerprint:
    return replace(fingerprint, made_at=fingerprint.made_at or turn.ended_at)


def _size(fingerprint: Fingerprint) -> int:
    """Bytes of its stored form."""
    return len(fingerprint.to_text().encode())


async def _of_turn(tx: Tx, space: Space, turn: Turn) -> Fingerprint | None:
    return (await of(tx, space, turn.session_id, [turn.turn_id])).get(turn.turn_id)


async def _titled(tx: Tx, space: Space, turn: Turn, new: Fingerprint) -> Fingerprint:
    """Without a title, unless the turn is the session's first."""
    if new.conversation_title and await turns.before(tx, space, turn.session_id, turn.sequence, 1):
        return replace(new, conversation_title="")
    return new


async def _keep(tx: Tx, space: Space, turn: Turn, there: Fingerprint | None, joined: Fingerprint) -> bool:
    """Stores it if it is another than before; whether it is."""
    # By their text: in Python 1 equals true.
    if there is not None and joined.to_text() == there.to_text():
        return False
    await _store(tx, space, turn, joined)
    return True


async def _store(tx: Tx, space: Space, turn: Turn, fingerprint: Fingerprint) -> None:
    row = await tx.fetchrow(
        "UPDATE sessions SET turn_version = turn_version + 1, title = CASE WHEN title = '' THEN $4 ELSE title END"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 RETURNING turn_version",
        space.account,
        space.user,
        turn.session_id,
        fingerprint.conversation_title,
    )
    if row is None:
        raise NotFound("session", turn.session_id)
    stored = Artifact(
        session_id=turn.session_id,
        kind=FINGERPRINT,
        name=turn.turn_id,
        turn_id=turn.turn_id,
        sequence=turn.sequence,
        text=fingerprint.to_text(),
        tags=fingerprint_tags(fingerprint),
        version=row["turn_version"],
        said_at=fingerprint.made_at,
    )
    await turn_artifacts.put(tx, space, stored, rules.promotion_text(fingerprint.assistant_signals))


async def of(tx: Tx, space: Space, session_id: str, turn_ids: Iterable[str]) -> dict[str, Fingerprint]:
    """Those of the turns that have one, by turn id."""
    found = await turn_artifacts.named(tx, space, session_id, FINGERPRINT, turn_ids)
    return {turn_id: Fingerprint.from_text(one.text) for turn_id, one in found.items()}


async def turn_version(tx: Tx, space: Space, session_id: str) -> int:
    """Of the session's last change of a fingerprint. Raises NotFound."""
    return await _of_session(tx, space, session_id, "turn_version")


async def _of_session(tx: Tx, space: Space, session_id: str, column: str) -> int:
    row = await tx.fetchrow(
        f"SELECT {column} FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    if row is None:
        raise NotFound("session", session_id)
    value: int = row[column]
    return value


async def delta(tx: Tx, space: Space, session_id: str, after_version: int) -> tuple[int, list[str]]:
    """How many fingerprints changed after that version, and the turns of the newest of them, newest turn first.

    Of the last DELTA changes, those that speak of the last DAYS; of these turns the newest DELTA_SHOWN.
    """
    rows = await tx.fetch(
        "SELECT turn_id, sequence, said_at FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3"
        f" AND kind = '{FINGERPRINT}' AND version > $4{without('turn_artifacts')} ORDER BY version DESC LIMIT $5",
        space.account,
        space.user,
        session_id,
        after_version,
        DELTA,
    )
    since = tx.now() - AGE
    places = sorted(((row["sequence"], row["turn_id"]) for row in rows if row["said_at"] >= since), reverse=True)
    return len(places), [turn_id for _, turn_id in places[:DELTA_SHOWN]]


# Fingerprints that changed after the last one that was folded into the session's buckets.
_UNCOVERED = (
    f"FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = '{FINGERPRINT}'"
    " AND version > (SELECT s.covered_version FROM sessions s"
    " WHERE s.account = $1 AND s.user_id = $2 AND s.session_id = $3)"
)


async def uncovered(tx: Tx, space: Space, session_id: str, limit: int) -> list[tuple[int, Fingerprint]]:
    """Fingerprints that are not folded into buckets as they are now, with their versions, the oldest change first."""
    rows = await tx.fetch(
        f"SELECT version, text {_UNCOVERED} ORDER BY version LIMIT $4", space.account, space.user, session_id, limit
    )
    return [(row["version"], Fingerprint.from_text(row["text"])) for row in rows]


async def left(tx: Tx, space: Space, session_id: str) -> int:
    """How many fingerprints are not folded into buckets as they are now."""
    row = await tx.fetchrow(f"SELECT COUNT(*) AS n {_UNCOVERED}", space.account, space.user, session_id)
    return row["n"] if row else 0


async def cover(tx: Tx, space: Space, session_id: str, version: int) -> None:
    """Says that fingerprints up to that version are folded into buckets; never takes that back."""
    await tx.execute(
        "UPDATE sessions SET covered_version = $4, covered_at = COALESCE((SELECT a.updated_at FROM turn_artifacts a"
        f" WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = $3 AND a.kind = '{FINGERPRINT}'"
        " AND a.version <= $4 ORDER BY a.version DESC LIMIT 1), $5)"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND covered_version < $4",
        space.account,
        space.user,
        session_id,
        version,
        tx.now(),
    )


async def covered_at(tx: Tx, space: Space, session_id: str) -> int:
    """When the last change was made that is folded into buckets; 0 when none is. Raises NotFound."""
    return await _of_session(tx, space, session_id, "covered_at")


async def signals(
    tx: Tx,
    space: Space,
    *,
    session_id: str = "",
    keys: Sequence[str] = (),
    after: tuple[int, str, str] | None = None,
    limit: int,
) -> list[tuple[str, Promotion]]:
    """What the assistant promoted in the last DAYS, with its session: in all sessions, or in one; anything, or turns
    with one of these keys (spelled in any way that tags take for the same), which come with their other signals too.

    By (made_at, session, turn order), all falling, behind (made_at, session_id, turn_id) of the page before.
    """
    said_at, last_session, sequence = LATEST, "", 0
    if after is not None:
        said_at, last_session, turn_id = after
        last = (await turns.find(tx, space, last_session, [turn_id])).get(turn_id)
        sequence = last.sequence if last else 0
    args: list[object] = [
        space.account,
        space.user,
        tx.now() - AGE,
        said_at,
        sequence,
        limit,
        session_id or last_session,
    ]
    behind = "session_id = $7 AND (said_at, sequence) < ($4, $5)"
    order = "said_at DESC, sequence DESC"
    if not session_id:
        behind = "(said_at, session_id, sequence) < ($4, $7, $5)"
        order = "said_at DESC, session_id DESC, sequence DESC"

    def tagged(tag: str, columns: str) -> str:
        args.append(tag)
        return (
            f"SELECT said_at, session_id, sequence, {columns} FROM turn_tags"
            f" WHERE account = $1 AND user_id = $2 AND tag = ${len(args)} AND said_at >= $3 AND {behind}"
            f"{without('turn_tags')} ORDER BY {order} LIMIT $6"
        )

    if keys or session_id:
        # Found in an index that has no more than this, then read.
        tags = dict.fromkeys(signal_tag(key) for key in keys) or (ASSISTANT_SIGNAL,)
        some = " UNION ".join(f"SELECT * FROM ({tagged(tag, 'name')}) b{number}" for number, tag in enumerate(tags))
        sql = (
            f"SELECT p.said_at, p.session_id, p.name, p.promoted FROM (SELECT * FROM ({some}) u"
            " ORDER BY said_at DESC, session_id DESC, sequence DESC LIMIT $6) t CROSS JOIN turn_tags p"
            f" WHERE p.account = $1 AND p.user_id = $2 AND p.tag = '{ASSISTANT_SIGNAL}' AND p.said_at = t.said_at"
            f" AND p.session_id = t.session_id AND p.kind = '{FINGERPRINT}' AND p.name = t.name"
            " ORDER BY t.said_at DESC, t.session_id DESC, t.sequence DESC"
        )
    else:
        sql = tagged(ASSISTANT_SIGNAL, "name, promoted")
    rows = await tx.fetch(sql, *args)
    said = rules.promoted(row["promoted"] for row in rows)
    return [
        (row["session_id"], Promotion(row["name"], row["said_at"], some)) for row, some in zip(rows, said, strict=True)
    ]
