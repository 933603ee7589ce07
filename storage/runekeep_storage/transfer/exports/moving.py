"""Converts rows of an export to rows of the importing space: another user's URIs, later revisions, new task ids.

It changes references only: columns and JSON members that hold a URI, a revision or a task id. What people and agents
said stays, even if it quotes a URI.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid5

from runekeep_schemas.documents.uris import space_root
from runekeep_storage.transfer.exports.archive import ArchiveError
from runekeep_storage.transfer.exports.rows import JsonRow


@dataclass(slots=True)
class Moving:
    """Moves rows from the user `source` to the user `target`, `offset` revisions later.

    `renamed`: new ids of tasks. `anew`: namespace from which all tasks get new ids, each always the same one; None:
    tasks that are not in `renamed` keep their ids.
    """

    source: str
    target: str
    offset: int
    revision: int
    anew: UUID | None = None
    renamed: dict[str, str] = field(default_factory=dict)

    def own(self, uri: str) -> str:
        """Returns a URI that must belong to the exported space, moved. Raises ArchiveError for any other."""
        moved = self._moved(uri)
        if moved is None:
            raise ArchiveError("the export names something outside of its space")
        return moved

    def any(self, uri: str) -> str:
        """Returns a URI that somebody provided, moved if it belongs to the exported space."""
        moved = self._moved(uri)
        return uri if moved is None else moved

    def _moved(self, uri: str) -> str | None:
        here = space_root(self.source)
        rest = uri.removeprefix(here)
        return space_root(self.target) + rest if uri.startswith(here) and rest[:1] in ("", "/") else None

    def later(self, revision: int) -> int:
        """Returns a moved revision; 0, which means none, stays 0. Raises ArchiveError for a revision that the export
        had not reached."""
        if revision > self.revision:
            raise ArchiveError("the export holds a revision that it has not reached")
        return revision + self.offset if revision else 0

    def task(self, task_id: str) -> str:
        if self.anew is not None and task_id:
            return str(uuid5(self.anew, task_id))
        return self.renamed.get(task_id, task_id)

    def row(self, table: str, row: JsonRow) -> JsonRow:
        """Changes the row in place and returns it. Raises ArchiveError."""
        if table in _MOVES:
            _MOVES[table](self, row)
        return row


def _message(moving: Moving, row: JsonRow) -> None:
    for part in row["parts"]:
        if part["type"] == "context":
            part["uri"] = moving.any(part["uri"])


def _archive(moving: Moving, row: JsonRow) -> None:
    row["task_id"] = moving.task(row["task_id"])
    row["revision"] = moving.later(row["revision"])
    if row["diff"] is not None:
        for changes in row["diff"]["operations"].values():
            for change in changes:
                change["uri"] = moving.own(change["uri"])


def _task(moving: Moving, row: JsonRow) -> None:
    row["task_id"] = moving.task(row["task_id"])
    result: dict[str, Any] = row["result"] or {}
    if "revision" in result:
        result["revision"] = moving.later(result["revision"])
    for left_out in (*result.get("skipped", ()), *result.get("rejected", ())):
        if "uri" in left_out:
            left_out["uri"] = moving.any(left_out["uri"])


def _job(moving: Moving, row: JsonRow) -> None:
    row["job_id"] = moving.task(row["job_id"])


def _proposal(moving: Moving, row: JsonRow) -> None:
    row["task_id"] = moving.task(row["task_id"])
    row["revision"] = moving.later(row["revision"])
    for one in row["operations"]:
        for name in ("revision", "base_revision"):
            one[name] = moving.later(one[name])
        one["targets"] = {moving.own(uri): target for uri, target in one["targets"].items()}
        for kind in ("edit", "delete"):
            if kind in one["operation"]:
                one["operation"][kind]["uri"] = moving.any(one["operation"][kind]["uri"])


def _commit(moving: Moving, row: JsonRow) -> None:
    row["job_id"] = moving.task(row["job_id"])
    for name in ("revision", "rolled_back"):
        row[name] = moving.later(row[name])


def _memory(moving: Moving, row: JsonRow) -> None:
    row["uri"] = moving.own(row["uri"])
    for name in ("rev_from", "rev_to"):
        row[name] = moving.later(row[name])


def _named(moving: Moving, row: JsonRow) -> None:
    row["uri"] = moving.own(row["uri"])


def _recalled(moving: Moving, row: JsonRow) -> None:
    row["name"] = moving.any(row["name"])


_MOVES: Final[Mapping[str, Callable[[Moving, JsonRow], None]]] = {
    "messages": _message,
    "archives": _archive,
    "tasks": _task,
    "jobs": _job,
    "proposals": _proposal,
    "commits": _commit,
    "memories": _memory,
    "active_counts": _named,
    "usages": _named,
    "recalled": _recalled,
}
