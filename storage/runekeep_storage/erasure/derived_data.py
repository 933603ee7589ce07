"""Removes what archives and tasks say about erased memories and messages: diffs, model answers, and what was rejected
and why. Counts and states stay."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.erasure import statements
from runekeep_storage.tables import OUT_OF_NAMES, TABLES

ArchiveName = tuple[str, int]
"""(session id, index)."""

_QUOTING = ("skipped", "rejected")
"""Lists in a task's result that name memories and say what was wrong with them."""
_ERASED = "erased"


async def out_of_archives(
    tx: Tx, space: Space, archives: Iterable[ArchiveName], firsts: Mapping[str, int], *, emptied: bool
) -> list[str]:
    """Removes entries from the diffs of archives: for each memory of `firsts` those from that version on. `emptied`:
    also empties the views, which were made from erased messages. Returns the tasks of the archives."""
    tasks = []
    for session_id, index in archives:
        key = (space.account, space.user, session_id, index)
        row = await tx.fetchrow(statements.DIFF, *key)
        if row is None:
            continue
        tasks.append(row["task_id"])
        diff = _without(row["diff"], firsts)
        await tx.execute(statements.set_diff(emptied), *key, diff, *([""] if emptied else []))
    return tasks


def entries(diff: str) -> Iterable[dict[str, Any]]:
    """Yields the entries of all kinds in a stored diff."""
    if diff:
        for some in json.loads(diff).get("operations", {}).values():
            yield from some


def _without(diff: str, firsts: Mapping[str, int]) -> str:
    if not any(_is_erased(entry, firsts) for entry in entries(diff)):
        return diff
    body = json.loads(diff)
    body["operations"] = {
        kind: [entry for entry in some if not _is_erased(entry, firsts)] for kind, some in body["operations"].items()
    }
    return json.dumps(body, ensure_ascii=False)


def _is_erased(entry: Mapping[str, Any], firsts: Mapping[str, int]) -> bool:
    first = firsts.get(entry["uri"])
    return first is not None and entry["version"] >= first


async def out_of_tasks(tx: Tx, space: Space, task_ids: Iterable[str]) -> None:
    """Removes texts from tasks, their events and their jobs, and deletes the records of their attempts and what they
    propose. The number of statements grows with the number of different texts, not of tasks: there may be
    thousands."""
    for some in filled(task_ids):
        key = (space.account, space.user, *some)
        for table, column, emptied in _TEXTS:
            rows = await tx.fetch(statements.texts_of_tasks(table, column), *key)
            for text in [row["text"] for row in rows if emptied(row["text"]) != row["text"]]:
                await tx.execute(statements.replace_text(table, column), *key, text, emptied(text))
        await tx.execute(statements.FORGET_FAILURES, *key)
        for table in ("extraction_records", "proposals"):
            await tx.execute(statements.delete_with_tasks(table), *key)


async def is_proposed(tx: Tx, space: Space, peer_id: str) -> bool:
    """Returns whether a proposal is about the peer, whoever spoke about the peer."""
    return bool(await _tasks_about(tx, space, peer_id))


async def out_of_proposals(tx: Tx, space: Space, peer_id: str) -> None:
    """Deletes the proposals about a peer."""
    for some in filled(await _tasks_about(tx, space, peer_id)):
        await tx.execute(statements.delete_with_tasks("proposals"), space.account, space.user, *some)


async def _tasks_about(tx: Tx, space: Space, peer_id: str) -> list[str]:
    """Returns the tasks of proposals that target or name a memory of the peer."""
    escaped = peer_id.translate({ord(sign): f"!{sign}" for sign in "!%_"})
    rows = await tx.fetch(statements.PROPOSALS_LIKE, space.account, space.user, f"%/peers/{escaped}/%")
    return [row["task_id"] for row in rows if f"/peers/{peer_id}/" in row["operations"]]


def _result(result: str) -> str:
    body = json.loads(result) if result else {}
    quoting = [kind for kind in _QUOTING if body.get(kind)]
    return json.dumps({**body, **{kind: [] for kind in quoting}}) if quoting else result


def _said(body: str) -> str:
    """Returns an error, or a step of progress, without its message."""
    return json.dumps({**json.loads(body), "message": _ERASED}) if body else ""


_TEXTS: Final[Sequence[tuple[str, str, Callable[[str], str]]]] = (
    ("tasks", "result", _result),
    ("tasks", "error", _said),
    ("tasks", "progress", _said),
    ("task_events", "body", _said),
)
"""(table, column, function that empties the text)."""


async def that_may_quote(tx: Tx, space: Space, revision: int) -> list[str]:
    """Returns tasks that may have been shown what a revision wrote: an attempt of theirs read at that revision or
    later, or a reviewer edited their proposal then."""
    rows = await tx.fetch(statements.READERS_SINCE, space.account, space.user, revision)
    return [row["task_id"] for row in rows]


async def out_of_names(tx: Tx, space: Space, gone: Iterable[str]) -> None:
    """Removes memories that are gone from use counts, recorded uses, and the results of other tasks that name them."""
    for some in filled(gone):
        for table in [table.name for table in TABLES if table.message == OUT_OF_NAMES]:
            await tx.execute(statements.delete_with_memories(table), space.account, space.user, *some)
    names = set(gone)
    if not names:
        return
    # Few results name a memory: only rejected and skipped operations do.
    rows = await tx.fetch(statements.RESULTS_WITH_URIS, space.account, space.user)
    for row in rows:
        body = json.loads(row["result"])
        kept = {
            kind: [entry for entry in body.get(kind, ()) if not _names(entry, names)]
            for kind in _QUOTING
            if kind in body
        }
        if any(len(kept[kind]) < len(body[kind]) for kind in kept):
            result = json.dumps({**body, **kept}, ensure_ascii=False)
            await tx.execute(statements.SET_RESULT, space.account, space.user, row["task_id"], result)


def _names(entry: Mapping[str, Any], names: set[str]) -> bool:
    return entry.get("uri") in names or any(name in str(entry.get("message", "")) for name in names)
