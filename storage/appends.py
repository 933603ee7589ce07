"""Appends to sessions: those of many callers at once, each as if it were alone.

One row a message: an append costs the same at any length of its session. No call comes as often as an append, and a
statement costs more than a row of it, so those that wait together are read and written by statements of many rows.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from schemas import tokens
from schemas.auto_commit import AutoCommit
from storage import message_rows, requests, tool_calls, turns
from storage.blobs import digest_of
from storage.database import Row, Space, Tx
from storage.errors import AlreadyExists, NotFound
from storage.records import STORED_OUTPUT, Message
from storage.requests import RequestKey
from storage.statement_lists import ROWS, by_keys, in_rows, rows


@dataclass(frozen=True, slots=True)
class Added:
    """Messages as they are stored, in the order of the call, and how many are live now. `due`: something new came, and
    with it a bound of the session's automatic commits is reached."""

    messages: list[Message]
    live: int
    due: bool


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for the end of a session.

    `brought`: those of their ids that the session may have, since a caller chose them; of the others it is known that
    no message has them. `tool_outputs` maps tool ids to (blob, length) of outputs that were kept apart. `answer` makes
    of what was added what is given, and kept for `key`; it may go on in the transaction where a commit is due.
    """

    session_id: str
    messages: Sequence[Message]
    brought: frozenset[str]
    tool_outputs: dict[str, tuple[str, int]]
    key: RequestKey | None
    answer: Callable[[Tx, Added], Awaitable[bytes]]
    bodies: Sequence[str] = field(init=False)
    """The parts of each message as they are stored. Encoded here, since encoding megabytes would delay the writer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bodies", [tokens.stored_parts(message.parts) for message in self.messages])


Asked = tuple[Space, Append]

_TOGETHER = 2**20
"""Characters of appends that are made together. To prepare, to send and to store those of many callers may take longer
than PostgreSQL leaves a transaction between two statements, or than one statement may last."""


@dataclass(slots=True)
class _Session:
    """A row of `sessions` as it is to become."""

    row: Row
    last_sequence: int
    live_tokens: int
    said_at: int
    idle_at: int
    rules: AutoCommit
    by_id: dict[str, Message] = field(default_factory=dict)
    """Those of its messages whose ids callers brought."""

    @property
    def live(self) -> int:
        return self.last_sequence - int(self.row["archived_sequence"])


@dataclass(frozen=True, slots=True)
class _New:
    """A message that is to be written, with its columns."""

    user: str
    session_id: str
    message: Message
    body: str
    tokens: int


async def add(tx: Tx, items: Sequence[Asked]) -> list[bytes | Exception]:
    """Appends in order, of one account; for each what its `answer` made, or was made of it the first time.

    A message whose id the session has already, with the same content, is returned as it is and not added again; with
    other content it is AlreadyExists, and nothing of its call is added. The others make and lengthen turns. NotFound
    for a session that is not there; RequestReused and NotFound as `requests.kept` raises them.
    """
    answers: list[bytes | Exception] = []
    while len(answers) < len(items):
        answers += await _some(tx, list(_by_themselves(items[len(answers) :])))
    return answers


def _by_themselves(items: Sequence[Asked]) -> Iterator[Asked]:
    """The first ones, up to one that has the request id of one among them: it is to find what that was answered. Of
    large ones as many as _TOGETHER holds, one at least."""
    seen: set[tuple[str, str]] = set()
    room = _TOGETHER
    for place, (space, item) in enumerate(items[:ROWS]):
        room -= sum(map(len, item.bodies))
        if place and room < 0:
            return
        if item.key is not None:
            if (space.user, item.key.request_id) in seen:
                return
            seen.add((space.user, item.key.request_id))
        yield space, item


async def _some(tx: Tx, items: Sequence[Asked]) -> list[bytes | Exception]:
    """Answers of the first ones, up to one with which a commit is due: what follows it is not to be in that commit."""
    account = items[0][0].account
    keys = [(space.user, item.key) for space, item in items if item.key is not None]
    before = await requests.kept_of_each(tx, account, keys) if keys else {}
    standing = await _sessions(tx, account, list(dict.fromkeys((space.user, item.session_id) for space, item in items)))
    await _find_brought(tx, account, items, standing)

    answers: list[bytes | Exception] = []
    new: list[_New] = []
    done: list[tuple[int, Space, Append, Added]] = []
    for place, (space, item) in enumerate(items):
        kept = before.get((space.user, item.key)) if item.key is not None else None
        session = standing.get((space.user, item.session_id))
        if kept is not None:
            answers.append(kept)
        elif session is None:
            answers.append(NotFound("session", item.session_id))
        else:
            added = _placed(tx.now(), space.user, item, session, new)
            answers.append(added if isinstance(added, AlreadyExists) else b"")
            if isinstance(added, Added):
                done.append((place, space, item, added))
                if added.due:
                    break

    await _write(tx, account, new, standing, done)
    remembered: list[tuple[str, RequestKey, bytes]] = []
    for place, space, item, added in done:
        answer = answers[place] = await item.answer(tx, added)
        if item.key is not None:
            remembered.append((space.user, item.key, answer))
    if remembered:
        await requests.remember(tx, account, remembered)
    return answers


def _placed(now: int, user: str, item: Append, session: _Session, new: list[_New]) -> Added | AlreadyExists:
    """Puts the messages behind the session's last one. An error changes nothing."""
    stored: list[Message] = []
    fresh: list[_New] = []
    by_id: dict[str, Message] = {}
    for message, body in zip(item.messages, item.bodies, strict=True):
        there = by_id.get(message.message_id) or session.by_id.get(message.message_id)
        if there is not None:
            if _content(there) != _content(message):
                return AlreadyExists("message", message.message_id)
            stored.append(there)
            continue
        placed = replace(message, created_at=message.created_at or now, sequence=session.last_sequence + len(fresh) + 1)
        fresh.append(_New(user, item.session_id, placed, body, tokens.tokens_of_stored(body)))
        stored.append(placed)
        if message.message_id in item.brought:
            by_id[message.message_id] = placed
    new += fresh
    session.by_id |= by_id
    session.last_sequence += len(fresh)
    session.live_tokens += sum(one.tokens for one in fresh)
    if fresh:
        session.said_at = now
        session.idle_at = session.rules.idle_at(now, session.live)
    return Added(stored, session.live, bool(fresh) and session.rules.due(session.live_tokens, session.live))


def _content(message: Message) -> tuple[object, ...]:
    """What two messages of one id share; an output that is kept apart may be another blob of the same data by now."""
    parts = [
        {**part, STORED_OUTPUT: digest_of(part[STORED_OUTPUT])} if STORED_OUTPUT in part else part
        for part in message.parts
    ]
    return message.role, parts, message.peer_id


# Statements


async def _sessions(tx: Tx, account: str, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], _Session]:
    """By user and session: those of at most ROWS that are there."""
    found = await tx.fetch(_select_sessions(len(names)), account, *(part for name in names for part in name))
    return {
        (row["user_id"], row["session_id"]): _Session(
            row,
            row["last_sequence"],
            row["live_tokens"],
            row["said_at"],
            row["idle_at"],
            AutoCommit.from_json(row["auto_commit"]),
        )
        for row in found
    }


@cache
def _select_sessions(count: int) -> str:
    select = (
        "SELECT user_id, session_id, last_sequence, archived_sequence, auto_commit, live_tokens, said_at, idle_at"
        " FROM sessions WHERE account = $1"
    )
    return by_keys(select, ("user_id", "session_id"), count, 2)


async def _find_brought(
    tx: Tx, account: str, items: Sequence[Asked], standing: dict[tuple[str, str], _Session]
) -> None:
    """Tells the sessions which messages they have of ids that callers brought."""
    names = dict.fromkeys(
        (space.user, item.session_id, message_id)
        for space, item in items
        if (space.user, item.session_id) in standing
        for message_id in item.brought
    )
    for some in in_rows(list(names)):
        found = await tx.fetch(_select_messages(len(some)), account, *(part for name in some for part in name))
        for row in found:
            message = message_rows.message(row)
            standing[row["user_id"], row["session_id"]].by_id[message.message_id] = message


@cache
def _select_messages(count: int) -> str:
    return by_keys("SELECT * FROM messages WHERE account = $1", ("user_id", "session_id", "message_id"), count, 2)


async def _write(
    tx: Tx,
    account: str,
    new: Sequence[_New],
    standing: dict[tuple[str, str], _Session],
    done: Sequence[tuple[int, Space, Append, Added]],
) -> None:
    now = tx.now()
    for some in in_rows(new):
        values = [value for one in some for value in _columns(one)]
        await tx.execute(_insert_messages(len(some)), account, now, *values)
    await turns.extend(tx, account, ((one.user, one.session_id, one.message) for one in new))
    for _, space, item, _ in done:
        for tool_id, (blob, length) in item.tool_outputs.items():
            await tx.execute(
                "INSERT INTO tool_outputs (account, user_id, session_id, tool_id, blob, length)"
                " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, user_id, session_id, tool_id)"
                " DO UPDATE SET blob = excluded.blob, length = excluded.length",
                account,
                space.user,
                item.session_id,
                tool_id,
                blob,
                length,
            )
    changed = dict.fromkeys((space.user, item.session_id) for _, space, item, _ in done)
    for names in in_rows(list(changed)):
        values = []
        for name in names:
            session = standing[name]
            values += (*name, session.last_sequence, session.live_tokens, session.said_at, session.idle_at)
        await tx.execute(_update_sessions(len(names)), account, now, *values)


def _columns(new: _New) -> tuple[object, ...]:
    message = new.message
    return (
        new.user,
        new.session_id,
        message.sequence,
        message.message_id,
        message.role,
        message.peer_id,
        message.turn_id,
        message.speaker,
        new.tokens,
        message_rows.shown(message.parts, new.user),
        new.body,
        sum(STORED_OUTPUT in part for part in message.parts),
        tool_calls.column(message),
        message.created_at,
    )


@cache
def _insert_messages(count: int) -> str:
    return (
        "INSERT INTO messages (account, added_at, user_id, session_id, sequence, message_id, role, peer_id, turn_id,"
        " speaker, tokens, shown, parts, outputs, calls, created_at)"
        f" VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)', count, 3)}"
    )


@cache
def _update_sessions(count: int) -> str:
    # All of them are there. An UPDATE that joins them PostgreSQL may have read every session of the account.
    return (
        "INSERT INTO sessions (account, updated_at, user_id, session_id, last_sequence, live_tokens, said_at, idle_at)"
        f" VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?)', count, 3)} ON CONFLICT (account, user_id, session_id)"
        " DO UPDATE SET last_sequence = excluded.last_sequence, live_tokens = excluded.live_tokens,"
        " said_at = excluded.said_at, idle_at = excluded.idle_at, updated_at = excluded.updated_at"
    )
