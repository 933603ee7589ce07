"""Fingerprints of turns: merged into the stored one, numbered by change, and read by turn, by change or by signal.

Every change takes the next number of its session, `turn_version`, as its `version`, so that readers find newer ones
without a clock. An update that changes nothing takes none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from runekeep_common.times import DAY_US
from runekeep_schemas.turns import fingerprint as rules
from runekeep_schemas.turns.fingerprint import LISTS, MAX_BYTES, Fingerprint, Promotion
from runekeep_schemas.turns.stored import ASSISTANT_SIGNAL, FINGERPRINT, fingerprint_tags, signal_tag
from runekeep_schemas.turns.window import DAYS, DELTA, DELTA_SHOWN
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import FingerprintTooLong, NotFound
from runekeep_storage.records import Artifact, Turn
from runekeep_storage.turns import artifacts, statements, turns
from runekeep_storage.turns.artifacts import LATEST

AGE = DAYS * DAY_US
"""Microseconds after which a fingerprint no longer counts as a recent change or a promotion to show."""

_ADDED = ("objective", *LISTS, "topics", "conversation_title", "ctx_retrieval_queries")
"""Fields that extractors may add to a fingerprint, the most needed first."""


async def submit(tx: Tx, space: Space, turn: Turn, new: Fingerprint) -> Fingerprint:
    """Merges a caller's fingerprint of the turn with the stored one; returns the result.

    A title counts only in the first turn of the session; it becomes the session's title if that has none. Raises
    FingerprintTooLong if the result exceeds MAX_BYTES.
    """
    there = await _of_turn(tx, space, turn)
    joined = rules.merge(there or Fingerprint(turn.turn_id), await _titled(tx, space, turn, new))
    joined = _dated(joined, turn)
    if (size := _size(joined)) > MAX_BYTES:
        raise FingerprintTooLong(turn.turn_id, size, MAX_BYTES)
    await _keep(tx, space, turn, there, joined)
    return joined


async def fill(tx: Tx, space: Space, turn: Turn, there: Fingerprint | None, extracted: Fingerprint) -> bool:
    """Adds an extractor's findings to the fingerprint: fills empty fields and adds topics. Returns whether that changed
    anything.

    `there`: the turn's fingerprint as read in this transaction. Additions get the turn's own time, not that of the
    extraction. Leaves out each field that would make the result exceed MAX_BYTES.
    """
    before = there or Fingerprint(turn.turn_id)
    filled = rules.fill(before, await _titled(tx, space, turn, replace(extracted, made_at=0)))
    joined = _within_bounds(_dated(before, turn), _dated(filled, turn))
    if there is None and joined.is_empty and not joined.conversation_title:
        # Only a title, which counts only in the session's first turn.
        return False
    return await _keep(tx, space, turn, there, joined)


def _within_bounds(before: Fingerprint, filled: Fingerprint) -> Fingerprint:
    if _size(filled) <= MAX_BYTES:
        return filled
    taken = before
    for name in _ADDED:
        more = replace(taken, **{name: getattr(filled, name)})
        if _size(more) <= MAX_BYTES:
            taken = more
    return taken


def _dated(fingerprint: Fingerprint, turn: Turn) -> Fingerprint:
    return replace(fingerprint, made_at=fingerprint.made_at or turn.ended_at)


def _size(fingerprint: Fingerprint) -> int:
    """Returns the bytes of the stored form."""
    return len(fingerprint.to_text().encode())


async def _of_turn(tx: Tx, space: Space, turn: Turn) -> Fingerprint | None:
    return (await of(tx, space, turn.session_id, [turn.turn_id])).get(turn.turn_id)


async def _titled(tx: Tx, space: Space, turn: Turn, new: Fingerprint) -> Fingerprint:
    """Drops the title unless the turn is the session's first."""
    if new.conversation_title and await turns.before(tx, space, turn.session_id, turn.sequence, 1):
        return replace(new, conversation_title="")
    return new


async def _keep(tx: Tx, space: Space, turn: Turn, there: Fingerprint | None, joined: Fingerprint) -> bool:
    """Stores the fingerprint if it differs from the stored one; returns whether it does."""
    # Compare texts: in Python 1 equals True.
    if there is not None and joined.to_text() == there.to_text():
        return False
    await _store(tx, space, turn, joined)
    return True


async def _store(tx: Tx, space: Space, turn: Turn, fingerprint: Fingerprint) -> None:
    row = await tx.fetchrow(
        statements.NEXT_TURN_VERSION,
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
    await artifacts.put(tx, space, stored, rules.promotion_text(fingerprint.assistant_signals))


async def of(tx: Tx, space: Space, session_id: str, turn_ids: Iterable[str]) -> dict[str, Fingerprint]:
    """Returns the existing fingerprints by turn id."""
    found = await artifacts.named(tx, space, session_id, FINGERPRINT, turn_ids)
    return {turn_id: Fingerprint.from_text(one.text) for turn_id, one in found.items()}


async def turn_version(tx: Tx, space: Space, session_id: str) -> int:
    """Returns the version of the session's last fingerprint change. Raises NotFound."""
    return await _of_session(tx, space, session_id, "turn_version")


async def _of_session(tx: Tx, space: Space, session_id: str, column: str) -> int:
    row = await tx.fetchrow(statements.fingerprints_column(column), space.account, space.user, session_id)
    if row is None:
        raise NotFound("session", session_id)
    value: int = row[column]
    return value


async def delta(tx: Tx, space: Space, session_id: str, after_version: int) -> tuple[int, list[str]]:
    """Returns how many fingerprints changed after that version, and the turns of the newest of them, newest turn first.

    Considers the last DELTA changes within the last DAYS; lists the newest DELTA_SHOWN turns.
    """
    rows = await tx.fetch(statements.CHANGED_FINGERPRINTS, space.account, space.user, session_id, after_version, DELTA)
    since = tx.now() - AGE
    places = sorted(((row["sequence"], row["turn_id"]) for row in rows if row["said_at"] >= since), reverse=True)
    return len(places), [turn_id for _, turn_id in places[:DELTA_SHOWN]]


async def uncovered(tx: Tx, space: Space, session_id: str, limit: int) -> list[tuple[int, Fingerprint]]:
    """Returns fingerprints whose current state is not in the buckets, with their versions, the oldest change first."""
    rows = await tx.fetch(statements.UNCOVERED, space.account, space.user, session_id, limit)
    return [(row["version"], Fingerprint.from_text(row["text"])) for row in rows]


async def left(tx: Tx, space: Space, session_id: str) -> int:
    """Returns how many fingerprints have a current state that is not in the buckets."""
    row = await tx.fetchrow(statements.COUNT_UNCOVERED, space.account, space.user, session_id)
    return row["n"] if row else 0


async def cover(tx: Tx, space: Space, session_id: str, version: int) -> None:
    """Records that fingerprints up to that version are in the buckets; never moves back."""
    await tx.execute(statements.COVER, space.account, space.user, session_id, version, tx.now())


async def covered_at(tx: Tx, space: Space, session_id: str) -> int:
    """Returns when the newest change in the buckets was made; 0 if there is none. Raises NotFound."""
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
    """Returns what the assistant promoted in the last DAYS, with its session: in all sessions or in one. With `keys`,
    only turns that have one of these keys (in any spelling that maps to the same tag), with all signals of those turns.

    Sorted by (made_at, session, turn order), all descending, after (made_at, session_id, turn_id) of the previous page.
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
    statement = statements.ALL_SIGNALS
    if keys or session_id:
        tags = list(dict.fromkeys(signal_tag(key) for key in keys)) or [ASSISTANT_SIGNAL]
        statement = statements.signals(len(tags), bool(session_id))
        args += tags
    rows = await tx.fetch(statement, *args)
    said = rules.promoted(row["promoted"] for row in rows)
    return [
        (row["session_id"], Promotion(row["name"], row["said_at"], some)) for row, some in zip(rows, said, strict=True)
    ]
