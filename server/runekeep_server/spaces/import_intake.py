"""Parses an export while it arrives. Yields the rows to write, in order, each checked and moved to the importing user.

Nothing here waits, so it runs in threads: `feed` received bytes, then call `step` until it returns None. A step returns
about as much as one transaction writes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from sys import intern
from typing import Any, Final

from runekeep_schemas.documents.render import INDEX_CHARACTERS, index_text
from runekeep_schemas.memory_types.model import FieldType, MemoryType
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage import message_rows
from runekeep_storage.index import sparse
from runekeep_storage.memories.origins import Named
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.sessions import tool_calls
from runekeep_storage.transfer.exports.archive import LAST, ArchiveError, Begin, Data, Reader
from runekeep_storage.transfer.exports.layout import MANIFEST, Blob, Closing, Counts, Manifest, Order, Table
from runekeep_storage.transfer.exports.moving import Moving
from runekeep_storage.transfer.exports.rows import FORMS, JsonRow, decode, in_order
from runekeep_storage.transfer.exports.turn_rows import read_bucket, tags_of
from runekeep_storage.transfer.importing import OpenJob

STEP_ROWS: Final = 200
STEP_BYTES: Final = 512 * 1024
"""Bytes of lines of one step. A longer line is a step by itself."""
MAX_JOBS: Final = 100_000
MAX_SESSIONS: Final = 1_000_000
"""Limits, because some of both stays in memory until the import ends."""
_SMALL: Final = 1024 * 1024
_MAX_BLOB: Final = 64 * 1024 * 1024
_PYTHON: Final[Mapping[FieldType, type[Any] | tuple[type[Any], ...]]] = {
    FieldType.STRING: str,
    FieldType.INT64: int,
    FieldType.FLOAT32: (int, float),
    FieldType.BOOL: bool,
}


_Waiting = tuple[str, str, int]
"""An archive whose commit is not finished: its task, session and number."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table in the form of the store. `beside`: for memories `runekeep_storage.memories.origins.Named`, for
    turn memory the rows of its tags."""

    table: str
    rows: list[dict[str, Any]]
    beside: list[Any]


@dataclass(frozen=True, slots=True)
class BlobRead:
    """A large value that must be stored before the rows that name it."""

    digest: str
    data: bytes


@dataclass(slots=True)
class _Talk:
    """The counts in a session's row, and how many of its messages and archives have arrived."""

    last: int
    archived: int
    index: int
    messages: int = 0
    archives: int = 0


class Intake:
    """Parses one import. Set `moving` after `step` returned the manifest, and add renamed ids after it returned the
    table of jobs. That table has no rows; they are in `jobs`.

    `blobs`: names that the store gave to blobs, by digest. Raises ArchiveError, ArchiveTooLarge.
    """

    def __init__(self, registry: Registry, most: int) -> None:
        self._types: dict[str, MemoryType] = {one.name: one for one in (*registry, SESSION_SKILLS)}
        self._reader = Reader(most)
        self._order = Order()
        self.manifest: Manifest | None = None
        self.moving: Moving | None = None
        self.blobs: dict[str, tuple[str, str]] = {}
        self.jobs: list[OpenJob] = []
        self._what: Manifest | Closing | Table | Blob | str | None = None
        self._small = bytearray()
        self._line = bytearray()
        self._rows: list[tuple[JsonRow, int]] = []
        self._key: Sequence[Any] | None = None
        self._talks: dict[str, _Talk] = {}
        self._open: set[str] = set()
        self._waiting: set[_Waiting] = set()
        self._memory: tuple[str, int, int] = ("", 0, 0)
        self._sources: tuple[str, frozenset[tuple[str, str]]] = ("", frozenset())
        self._counted: dict[str, int] = {}
        self._closed = False

    def feed(self, data: bytes) -> None:
        self._reader.feed(data)

    def step(self) -> Manifest | Rows | BlobRead | None:
        """Returns the next thing to do, or None if it needs more bytes."""
        while (event := self._reader.next()) is not None:
            if isinstance(event, Begin):
                self._begin(event)
            elif (done := self._data(event)) is not None:
                return done
        return None

    def close(self) -> tuple[Counts, list[OpenJob]]:
        """Returns the counts of the export and its open jobs. Raises ArchiveError if the export is incomplete."""
        self._reader.close()
        if not self._closed or self.manifest is None:
            raise ArchiveError("the export is not whole")
        for talk in self._talks.values():
            if talk.messages != talk.last or talk.archives != talk.archived:
                raise ArchiveError("messages of the export are missing")
        pending = [one for one in self.jobs if one.state == "pending"]
        if {one.job_id for one in pending} != self._open:
            raise ArchiveError("tasks of the export are open, and nothing is to be done for them")
        if {(one.job_id, one.session_id, one.archive_index) for one in pending if one.archive_index} != self._waiting:
            raise ArchiveError("archives of the export wait for commits, and not for those that are to be done")
        counts = Counts(**{name: self._counted.get(name, 0) for name in Counts.model_fields})
        if counts != self.manifest.counts:
            raise ArchiveError("the export does not hold as much as it says")
        return counts, [self._moved(one) for one in self.jobs]

    # Entries

    def _begin(self, event: Begin) -> None:
        if self.manifest is None:
            if event.name != MANIFEST or event.size > _SMALL:
                raise ArchiveError("this is no export of Runekeep")
            self._what = MANIFEST
        elif event.name == LAST:
            self._order.end()
            if event.size > _SMALL:
                raise ArchiveError("the checksums of the export cannot be read")
            self._what = LAST
        else:
            self._what = self._order.what(event.name)
            if isinstance(self._what, Blob) and event.size > _MAX_BLOB:
                raise ArchiveError("an output in the export is too long")
            if isinstance(self._what, Table) and self._what.session and self._what.session not in self._talks:
                raise ArchiveError("the export has messages of a session that it does not have")
        self._small.clear()
        self._key = None

    def _data(self, event: Data) -> Manifest | Rows | BlobRead | None:
        match self._what:
            case None:
                return None
            case Table() as table:
                return self._lines(table, event)
        self._small += event.data
        if not event.last:
            return None
        content = bytes(self._small)
        self._small.clear()
        match self._what:
            case Blob() as blob:
                return self._blob(blob, content)
            case "manifest.json":
                self.manifest = Manifest.decode(content)
                return self.manifest
        closing, digest = Closing.decode(content), self._reader.digest
        if (closing.entries, closing.sha256) != (digest.entries, digest.hexadecimal()):
            raise ArchiveError("the export is damaged: its checksum is another one")
        self._closed = True
        return None

    def _blob(self, blob: Blob, content: bytes) -> BlobRead | None:
        if sha256(content).hexdigest() != blob.digest:
            raise ArchiveError("an output in the export is damaged")
        try:
            text = content.decode()
            if blob.is_bucket:
                read_bucket(text)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ArchiveError("an output in the export is not of its form") from error
        return None if blob.digest in self.blobs else BlobRead(blob.digest, content)

    # Lines

    def _lines(self, table: Table, event: Data) -> Rows | None:
        most = FORMS[table.name].max_line_bytes
        *whole, rest = event.data.split(b"\n")
        for line in whole:
            self._more(line, most)
            self._take(table, bytes(self._line))
            self._line.clear()
        self._more(rest, most)
        if event.last and self._line:
            raise ArchiveError("a line of the export has no end")
        size = sum(length for _, length in self._rows)
        if table.name == "jobs":
            return Rows(table.name, [], []) if event.last else None
        if self._rows and (event.last or len(self._rows) >= STEP_ROWS or size >= STEP_BYTES):
            rows, self._rows = self._rows, []
            return self._made(table, [row for row, _ in rows])
        return None

    def _more(self, data: bytes, most: int) -> None:
        if len(self._line) + len(data) > most:
            raise ArchiveError("a line of the export is too long")
        self._line += data

    def _take(self, table: Table, line: bytes) -> None:
        row = decode(table.name, line)
        self._key = in_order(table.name, self._key, row)
        moving = self.moving
        assert moving is not None, "the import has not begun"
        self._check(table, row)
        if table.name == "jobs":
            self.jobs.append(_job(row))
            return
        self._rows.append((moving.row(table.name, row), len(line)))
        counted = {"memories": "memory_versions"}.get(table.name, table.name)
        self._counted[counted] = self._counted.get(counted, 0) + 1

    def _check(self, table: Table, row: JsonRow) -> None:
        """Checks what a row says about other rows."""
        name = table.session or row.get("session_id", "")
        talk = self._talks.get(name)
        match table.name:
            case "sessions":
                if row["archived_sequence"] > row["last_sequence"]:
                    raise ArchiveError("a session of the export has archived more than was said")
                if len(self._talks) >= MAX_SESSIONS:
                    raise ArchiveError(f"the export has more than {MAX_SESSIONS} sessions")
                self._talks[name] = _Talk(row["last_sequence"], row["archived_sequence"], row["compression_index"])
            case "messages":
                assert talk is not None
                talk.messages += 1
                if row["sequence"] != talk.messages or talk.messages > talk.last:
                    raise ArchiveError("messages of the export are missing, or too many")
            case "archives":
                if talk is None or row["first_sequence"] != talk.archives + 1 or row["last_sequence"] > talk.archived:
                    raise ArchiveError("archives of the export are missing, or too many")
                if row["archive_index"] > talk.index:
                    raise ArchiveError("a session of the export has an archive that it never made")
                talk.archives = row["last_sequence"]
                if row["state"] == "pending":
                    self._waits(self._waiting, (row["task_id"], name, row["archive_index"]))
            case "jobs":
                if talk is None and row["state"] == "pending":
                    raise ArchiveError("work of the export is about a session that it does not have")
                if len(self.jobs) >= MAX_JOBS:
                    raise ArchiveError(f"the export has more than {MAX_JOBS} commits and tasks that are not done")
            case "proposals":
                if talk is None or not 0 < row["archive_index"] <= talk.index:
                    raise ArchiveError("a proposal of the export is about an archive that it does not have")
            case "tasks":
                if row["state"] == "pending":
                    self._waits(self._open, row["task_id"])
            case "memories":
                self._check_memory(row)
            case "commits" | "active_counts":
                pass
            case _:
                if talk is None:
                    raise ArchiveError("the export has something of a session that it does not have")

    def _waits(self, those: set[Any], one: Any) -> None:
        if len(those) >= len(self.jobs):
            raise ArchiveError("the export waits for more work than it has")
        those.add(one)

    def _check_memory(self, row: JsonRow) -> None:
        """Checks that versions of one memory follow each other, and that the fields match their type."""
        uri, rev_from, rev_to = self._memory
        if row["uri"] == uri and (not rev_to or row["rev_from"] < max(rev_from, rev_to)):
            raise ArchiveError("versions of a memory in the export are there at the same time")
        self._memory = (row["uri"], row["rev_from"], row["rev_to"])
        if not row["rev_to"]:
            self._counted["memories"] = self._counted.get("memories", 0) + 1
        type = self._types.get(row["memory_type"])
        for name, value in row["fields"].items() if type is not None else ():
            if type is not None and type.has_field(name):
                wanted = type.field(name).type
                if not isinstance(value, _PYTHON[wanted]) or isinstance(value, bool) != (wanted is FieldType.BOOL):
                    raise ArchiveError(f"a memory in the export is none of the type {type.name} as it is here")

    # Rows for the store

    def _made(self, table: Table, rows: list[JsonRow]) -> Rows:
        beside: list[Any] = []
        made = []
        for row in rows:
            stored = {**row}
            match table.name:
                case "messages":
                    stored = self._message(table.session, stored)
                case "memories":
                    beside += self._new_sources(row["uri"], row["version"], [*row["sources"], *stored.pop("origins")])
                    stored["sparse"] = sparse.encode_document(self._text(row)).to_bytes()
                    stored["dense_model"] = ""
                case "turn_artifacts":
                    of_row = {name: row[name] for name in ("session_id", "kind", "name", "sequence", "said_at")}
                    beside += [{**of_row, "tag": tag, "promoted": more} for tag, more in tags_of(row).items()]
                    if row["blob"]:
                        stored["blob"], stored["hosted_uri"] = self.blobs.get(row["blob"], (row["blob"], ""))
                    else:
                        stored["hosted_uri"] = ""
                case "tool_outputs":
                    stored["blob"], _ = self.blobs.get(row["blob"], (row["blob"], ""))
            made.append(_encoded(table.name, stored))
        return Rows(table.name, made, beside)

    def _new_sources(self, uri: str, version: int, named: list[JsonRow]) -> list[Named]:
        """Returns the messages that the previous version does not name, since each version repeats earlier sources."""
        before = self._sources[1] if self._sources[0] == uri else frozenset()
        messages = dict.fromkeys((one["session"], one["message_id"]) for one in named)
        self._sources = uri, frozenset(messages)
        return [(uri, version, *message) for message in messages if message not in before]

    def _message(self, session: str, row: JsonRow) -> JsonRow:
        assert self.moving is not None
        outputs = 0
        for part in row["parts"]:
            if digest := part.get(STORED_OUTPUT):
                part[STORED_OUTPUT], _ = self.blobs.get(digest, (digest, ""))
                outputs += 1
        shown = message_rows.shown(row["parts"], self.moving.target)
        calls = tool_calls.column(Message(row["message_id"], row["role"], tuple(row["parts"])))
        return {"session_id": session, **row, "outputs": outputs, "shown": shown, "calls": calls}

    def _text(self, row: JsonRow) -> str:
        """Returns the text by which a version is indexed. For an unknown type, that is its abstract and content."""
        if row["deleted"]:
            return ""
        type = self._types.get(row["memory_type"])
        if type is None:
            return f"{row['abstract']}\n{row['content']}"[:INDEX_CHARACTERS]
        return index_text(type, row["fields"], row["uri"])

    def _moved(self, one: OpenJob) -> OpenJob:
        assert self.moving is not None
        plan = json.loads(one.plan)
        if one.kind == "commit":
            plan |= {name: [type for type in plan[name] if type in self._types] for name in _TYPES}
        return replace(one, job_id=self.moving.task(one.job_id), plan=json.dumps(plan, ensure_ascii=False))


_TYPES: Final = ("long_term_types", "execution_types")


def _job(row: JsonRow) -> OpenJob:
    """Returns the job of a row. Strings are interned to save memory, because most jobs share a plan with another."""
    return OpenJob(
        row["job_id"],
        intern(row["kind"]),
        intern(row["lane"]),
        intern(row["session_id"]),
        row["archive_index"],
        intern(json.dumps(row["plan"])),
        row["priority"],
        intern(row["state"]),
    )


def _encoded(table: str, row: dict[str, Any]) -> dict[str, Any]:
    form = FORMS[table]
    for name in (*form.json, *form.nullable):
        value = row[name]
        row[name] = "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return row
