"""One append by itself, without the request around it."""

from collections.abc import Sequence

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import Message
from runekeep_storage.sessions import appends
from runekeep_storage.sessions.appends import Append, AppendResult
from runekeep_storage.sessions.commits import CommitRules

RULES = CommitRules(Registry.load(), session_skills=True, max_open=100)


def nothing(appended: AppendResult) -> bytes:
    return b""


async def add_messages(
    tx: Tx,
    space: Space,
    session_id: str,
    messages: Sequence[Message],
    tool_outputs: dict[str, tuple[str, int]],
    rules: CommitRules = RULES,
) -> AppendResult:
    """Messages whose ids their caller chose. Raises what AddMessages would answer."""
    brought = frozenset(message.message_id for message in messages)
    item = Append(session_id, messages, brought, tool_outputs, rules, "", None, nothing)
    (outcome,) = await appends.add(tx, [(space, item)])
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, AppendResult)
    return outcome
