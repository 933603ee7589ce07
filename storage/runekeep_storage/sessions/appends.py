"""Appends messages to sessions. Appends from concurrent callers are batched into one transaction; each caller sees the
result it would have seen alone.

Each message is one row, so an append costs the same at any length of its session. Appends are the most frequent calls,
and a statement costs more than one of its rows, so the statements of a batch read and write many rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from runekeep_common import tokens
from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_storage import message_rows
from runekeep_storage.blobs.blobs import digest_of
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.drivers.common.statement_lists import ROWS, in_rows
from runekeep_storage.errors import AlreadyExists, NotFound
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.sessions import commits, statements, tool_calls
from runekeep_storage.sessions.commits import Commit, CommitRules, Refusal
from runekeep_storage.turns import turns


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The messages as stored, in the order of the call, and the number of messages that are live afterwards. `commit`:
    the automatic commit that the new messages made due, or why it was refused."""

    messages: list[Message]
    live: int
    commit: Commit | Refusal | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Messages to append to a session.

    `brought`: message ids that callers chose, so that the session may already have them; no message has the other ids.
    `tool_outputs` maps tool ids to (blob, length) of outputs that were moved to blobs. `rules` and `traceparent` are
    those of an automatic commit. `encode` turns the result into the response that is stored under `key`.
    """

    session_id: str
    messages: Sequence[Message]
    brought: frozenset[str]
    tool_outputs: dict[str, tuple[str, int]]
    rules: CommitRules
    traceparent: str
    key: RequestKey | None
    encode: Callable[[AppendResult], bytes]
    bodies: Sequence[str] = field(init=False)
    """The parts of each message as stored. Encoded here, because encoding megabytes in the transaction would delay the
    writer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bodies", [tokens.stored_parts(message.parts) for message in self.messages])


Asked = tuple[Space, Append]

MAX_BATCH_CHARS = 2**20
"""Maximum number of characters in one batch. Preparing, sending and storing larger batches may take longer than
PostgreSQL allows between two statements, or for one statement."""


@dataclass(slots=True)
class _Session:
    """A row of `sessions` with its pending changes."""

    row: Row
    last_sequence: int
    live_tokens: int
    said_at: int
    idle_at: int
    rules: AutoCommit
    by_id: dict[str, Message] = field(default_factory=dict)
    """The session's messages whose ids callers chose."""

    @property
    def live(self) -> int:
        return self.last_sequence - int(self.row["archived_sequence"])


@dataclass(frozen=True, slots=True)
class _New:
    """A message to insert, with the values of its columns."""

    user: str
    session_id: str
    message: Message
    body: str
    tokens: int


async def add_groups(
    tx: Tx, groups: Sequence[tuple[Space, Sequence[Append]]]
) -> list[list[AppendResult | bytes | Exception]]:
    """Appends groups of one account in order, see `add`. Returns the outcomes of each group in its order.

    The appends of a group are in one transaction, so that none is stored if those before it are lost.
    """
    outcomes = iter(await add(tx, [(space, item) for space, items in groups for item in items]))
    return [[next(outcomes) for _ in items] for _, items in groups]


async def add(tx: Tx, items: Sequence[Asked]) -> list[AppendResult | bytes | Exception]:
    """Appends in order, for one account, and creates the automatic commits that become due. Returns for each item its
    result, or the stored response of a repeat.

    A message whose id exists in the session with the same content is returned as stored and not added again. With other
    content the item gets AlreadyExists, and none of its messages is added. New messages create and extend turns. An
    item gets NotFound for an unknown session, and the errors of `idempotent_requests.find_responses`.
    """
    answers: list[AppendResult | bytes | Exception] = []
    while len(answers) < len(items):
        answers += await _some(tx, list(_by_themselves(items[len(answers) :])))
    return answers


def _by_themselves(items: Sequence[Asked]) -> Iterator[Asked]:
    """Yields the first items, up to one that repeats a request id among them, because the repeat must find the stored
    response. Stops when the items exceed MAX_BATCH_CHARS, but yields at least one."""
    seen: set[tuple[str, str]] = set()
    room = MAX_BATCH_CHARS
    for place, (space, item) in enumerate(items[:ROWS]):
        room -= sum(map(len, item.bodies))
        if place and room < 0:
            return
        if item.key is not None:
            if (space.user, item.key.request_id) in seen:
                return
            seen.add((space.user, item.key.request_id))
        yield space, item


async def _some(tx: Tx, items: Sequence[Asked]) -> list[AppendResult | bytes | Exception]:
    """Returns the outcomes of the first items, up to and including one that makes a commit due: later items must not
    be part of that commit."""
    account = items[0][0].account
    keys = [(space.user, item.key) for space, item in items if item.key is not None]
    before = await idempotent_requests.find_responses(tx, account, keys) if keys else {}
    standing = await _sessions(tx, account, list(dict.fromkeys((space.user, item.session_id) for space, item in items)))
    await _find_brought(tx, account, items, standing)

    outcomes: list[AppendResult | bytes | Exception] = []
    new: list[_New] = []
    is_due = False
    for space, item in items:
        kept = before.get((space.user, item.key)) if item.key is not None else None
        session = standing.get((space.user, item.session_id))
        if kept is not None:
            outcomes.append(kept)
        elif session is None:
            outcomes.append(NotFound("session", item.session_id))
        else:
            outcome, is_due = _place(tx.now(), space.user, item, session, new)
            outcomes.append(outcome)
            if is_due:
                break

    done = [
        (space, item, outcome)
        for (space, item), outcome in zip(items, outcomes, strict=False)
        if isinstance(outcome, AppendResult)
    ]
    await _write(tx, account, new, standing, done)
    if is_due:
        space, item, result = done.pop()
        outcomes[-1] = committed = await _commit(tx, space, item, result)
        done.append((space, item, committed))
    responses = [(space.user, item.key, item.encode(result)) for space, item, result in done if item.key is not None]
    if responses:
        await idempotent_requests.store_responses(tx, account, responses)
    return outcomes


async def _commit(tx: Tx, space: Space, item: Append, result: AppendResult) -> AppendResult:
    commit = await commits.create_automatic(tx, space, item.session_id, item.rules, traceparent=item.traceparent)
    return replace(result, live=commit.live if isinstance(commit, Commit) else result.live, commit=commit)


def _place(
    now: int, user: str, item: Append, session: _Session, new: list[_New]
) -> tuple[AppendResult | AlreadyExists, bool]:
    """Places the messages after the session's last one. An error changes nothing. The second value tells whether new
    messages made an automatic commit due."""
    stored: list[Message] = []
    fresh: list[_New] = []
    by_id: dict[str, Message] = {}
    for message, body in zip(item.messages, item.bodies, strict=True):
        there = by_id.get(message.message_id) or session.by_id.get(message.message_id)
        if there is not None:
            if _content(there) != _content(message):
                return AlreadyExists("message", message.message_id), False
            stored.append(there)
            continue
        placed = _placed(message, message.created_at or now, session.last_sequence + len(fresh) + 1)
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
    is_due = bool(fresh) and session.rules.due(session.live_tokens, session.live)
    return AppendResult(stored, session.live), is_due


def _placed(message: Message, created_at: int, sequence: int) -> Message:
    """Returns the message with its time and position. `dataclasses.replace` takes several times as long, for every
    message."""
    return Message(
        message.message_id,
        message.role,
        message.parts,
        message.peer_id,
        message.turn_id,
        message.speaker,
        created_at,
        sequence,
    )


def _content(message: Message) -> tuple[object, ...]:
    """Returns what two messages with one id must share. A tool output in a blob compares by its digest, because the
    same data may be in another blob by now."""
    parts = [
        {**part, STORED_OUTPUT: digest_of(part[STORED_OUTPUT])} if STORED_OUTPUT in part else part
        for part in message.parts
    ]
    return message.role, parts, message.peer_id


async def _sessions(tx: Tx, account: str, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], _Session]:
    """Returns existing sessions by user and session id, for at most ROWS names."""
    found = await tx.fetch(
        statements.positions_of_sessions(len(names)), account, *(part for name in names for part in name)
    )
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


async def _find_brought(
    tx: Tx, account: str, items: Sequence[Asked], standing: dict[tuple[str, str], _Session]
) -> None:
    """Loads the existing messages whose ids callers chose into the sessions."""
    names = dict.fromkeys(
        (space.user, item.session_id, message_id)
        for space, item in items
        if (space.user, item.session_id) in standing
        for message_id in item.brought
    )
    for some in in_rows(list(names)):
        found = await tx.fetch(statements.messages_by_id(len(some)), account, *(part for name in some for part in name))
        for row in found:
            message = message_rows.message(row)
            standing[row["user_id"], row["session_id"]].by_id[message.message_id] = message


async def _write(
    tx: Tx,
    account: str,
    new: Sequence[_New],
    standing: dict[tuple[str, str], _Session],
    done: Sequence[tuple[Space, Append, AppendResult]],
) -> None:
    now = tx.now()
    for some in in_rows(new):
        values = [value for one in some for value in _columns(one)]
        await tx.execute(statements.insert_messages(len(some)), account, now, *values)
    await turns.extend(tx, account, ((one.user, one.session_id, one.message) for one in new))
    for space, item, _ in done:
        for tool_id, (blob, length) in item.tool_outputs.items():
            await tx.execute(statements.STORE_TOOL_OUTPUT, account, space.user, item.session_id, tool_id, blob, length)
    changed = dict.fromkeys((space.user, item.session_id) for space, item, _ in done)
    for names in in_rows(list(changed)):
        values = []
        for name in names:
            session = standing[name]
            values += (*name, session.last_sequence, session.live_tokens, session.said_at, session.idle_at)
        await tx.execute(statements.move_sessions(len(names)), account, now, *values)


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
