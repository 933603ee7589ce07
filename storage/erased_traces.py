"""What archives and tasks tell of erased memories and messages, taken out of them: diffs, what models answered, what
was refused and why. Counts and states stay."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from storage.database import Space, Tx
from storage.statement_lists import filled, places

ArchiveName = tuple[str, int]
"""Session id and index."""

_QUOTING = ("skipped", "rejected")
"""Lists of a task's result that name memories and say what was wrong with them."""
_ERASED = "erased"


async def out_of_archives(
    tx: Tx, space: Space, archives: Iterable[ArchiveName], firsts: Mapping[str, int], *, emptied: bool
) -> list[str]:
    """Takes entries out of the diffs of archives: of each memory of `firsts` those from that version on. `emptied`:
    also the views, which were made of messages that are erased. Gives the tasks of the archives."""
    tasks = []
    for session_id, index in archives:
        row = await tx.fetchrow(
            "SELECT task_id, diff FROM archives"
            " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4",
            space.account,
            space.user,
            session_id,
            index,
        )
        if row is None:
            continue
        tasks.append(row["task_id"])
        await tx.execute(
            f"UPDATE archives SET diff = $5{', abstract = $6, overview = $6' if emptied else ''}"
            " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4",
            space.account,
            space.user,
            session_id,
            index,
            _without(row["diff"], firsts),
            *([""] if emptied else []),
        )
    return tasks


def entries(diff: str) -> Iterable[dict[str, Any]]:
    """Of all kinds, of a diff as it is stored."""
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
    """Takes texts out of tasks, of their events and of their jobs, and the records of their attempts away. The number
    of statements grows with the number of different texts, not with that of tasks: there may be thousands."""
    for some in filled(task_ids):
        key = (space.account, space.user, *some)
        for table, column, emptied, only in _TEXTS:
            of_tasks = f"WHERE account = $1 AND user_id = $2 AND task_id IN ({places(3)}){only}"
            rows = await tx.fetch(f"SELECT DISTINCT {column} AS text FROM {table} {of_tasks}", *key)
            for text in [row["text"] for row in rows if emptied(row["text"]) != row["text"]]:
                of_text = f"{of_tasks} AND {column} = ${len(key) + 1}"
                await tx.execute(f"UPDATE {table} SET {column} = ${len(key) + 2} {of_text}", *key, text, emptied(text))
        # What the next attempt would be told of the ones before.
        await tx.execute(
            "UPDATE jobs SET failures = '[]', repair = ''"
            f" WHERE account = $1 AND user_id = $2 AND job_id IN ({places(3)}) AND (failures <> '[]' OR repair <> '')",
            *key,
        )
        await tx.execute(
            f"DELETE FROM extraction_records WHERE account = $1 AND user_id = $2 AND task_id IN ({places(3)})", *key
        )


def _result(result: str) -> str:
    body = json.loads(result) if result else {}
    quoting = [kind for kind in _QUOTING if body.get(kind)]
    return json.dumps({**body, **{kind: [] for kind in quoting}}) if quoting else result


def _said(body: str) -> str:
    """An error, or a step of progress, without its words."""
    return json.dumps({**json.loads(body), "message": _ERASED}) if body else ""


_TEXTS: Final[Sequence[tuple[str, str, Callable[[str], str], str]]] = (
    ("tasks", "result", _result, ""),
    ("tasks", "error", _said, ""),
    ("tasks", "progress", _said, ""),
    ("task_events", "body", _said, " AND kind <> 'state'"),
)
"""Table, column, the text without words, and which rows alone."""


async def that_may_quote(tx: Tx, space: Space, revision: int) -> list[str]:
    """Tasks that may have been shown what a revision wrote: attempts of theirs read at it or later."""
    rows = await tx.fetch(
        "SELECT DISTINCT task_id FROM extraction_records WHERE account = $1 AND user_id = $2 AND base_revision >= $3",
        space.account,
        space.user,
        revision,
    )
    return [row["task_id"] for row in rows]


async def out_of_names(tx: Tx, space: Space, gone: Iterable[str]) -> None:
    """Takes memories that are gone out of what was counted, what was used, and what other tasks refused."""
    for some in filled(gone):
        for table in ("active_counts", "usages"):
            await tx.execute(
                f"DELETE FROM {table} WHERE account = $1 AND user_id = $2 AND uri IN ({places(3)})",
                space.account,
                space.user,
                *some,
            )
    names = set(gone)
    if not names:
        return
    # Nearly no result names a memory: only what was refused does, and what was skipped.
    rows = await tx.fetch(
        "SELECT task_id, result FROM tasks WHERE account = $1 AND user_id = $2 AND result LIKE '%://%'",
        space.account,
        space.user,
    )
    for row in rows:
        body = json.loads(row["result"])
        kept = {
            kind: [entry for entry in body.get(kind, ()) if not _names(entry, names)]
            for kind in _QUOTING
            if kind in body
        }
        if any(len(kept[kind]) < len(body[kind]) for kind in kept):
            await tx.execute(
                "UPDATE tasks SET result = $4 WHERE account = $1 AND user_id = $2 AND task_id = $3",
                space.account,
                space.user,
                row["task_id"],
                json.dumps({**body, **kept}, ensure_ascii=False),
            )


def _names(entry: Mapping[str, Any], names: set[str]) -> bool:
    return entry.get("uri") in names or any(name in str(entry.get("message", "")) for name in names)
