"""The layout of an export: its entries and their order, and the first and the last entry.

`manifest.json`, then the entries of FIRST, then the messages of each session, by id (`sessions/...`), then the entries
of REST, then the memories as files for people, then `checksums.json`. Order and names are fixed, so a reader needs no
more than a few rows at once.
"""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runekeep_schemas.documents.uris import SCHEME, IdKind, is_safe_id
from runekeep_storage.tables import TABLES, Export
from runekeep_storage.transfer.exports.archive import ArchiveError

VERSION: Final = 1
MANIFEST: Final = "manifest.json"
_ENTRIES: Final = [table.name for table in TABLES if isinstance(table.exported, Export)]
FIRST: Final = _ENTRIES[: _ENTRIES.index("messages")]
"""Tables that come before the messages, because all later rows belong to a session."""
REST: Final = _ENTRIES[len(FIRST) + 1 :]
ADDED: Final = frozenset({"proposals"})
"""Tables whose entries the first exports of this version do not have."""
MAX_REVISIONS: Final = 2**50
"""Maximum revision of a space. Twice that is still an integer that every language can represent."""

_SESSION: Final = r"sessions/(?P<session>[A-Za-z0-9][A-Za-z0-9._-]{0,127})"
_ARCHIVE: Final = r"history/archive_(?P<index>[0-9]{3,9})"
_MESSAGES = re.compile(rf"{_SESSION}/(?:{_ARCHIVE}/)?messages\.jsonl")
_BLOB = re.compile(rf"{_SESSION}/(?:outputs/(?P<output>[0-9a-f]{{64}})\.txt|buckets/(?P<bucket>[0-9a-f]{{64}})\.json)")
_VIEW = re.compile(
    rf"{_SESSION}/(?:{_ARCHIVE}/(?:\.abstract\.md|\.overview\.md|memory_diff\.json)|tools/[^/]+/tool\.json)"
    r"|(?:memories|peers|skills)/.+",
    re.DOTALL,
)
LIVE: Final = 10**9
"""Stands for an archive index in the entry of live messages. No archive has so high an index."""

Count = Annotated[int, Field(ge=0, le=MAX_REVISIONS)]


class Counts(BaseModel):
    """The amounts of data, named as in SpaceContents of the contract."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sessions: Count = 0
    messages: Count = 0
    archives: Count = 0
    memories: Count = 0
    memory_versions: Count = 0
    turns: Count = 0
    turn_artifacts: Count = 0
    tasks: Count = 0


class Manifest(BaseModel):
    """The first entry. `export_time` is ISO 8601 in UTC; `memory_types`: SHA-256 of each type, by name."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["runekeep-export"] = "runekeep-export"
    version: int
    runekeep: Annotated[str, Field(max_length=128)]
    user: str
    revision: Count
    export_time: Annotated[str, Field(max_length=64)]
    counts: Counts
    memory_types: dict[str, str]

    def encode(self) -> bytes:
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=2).encode()

    @classmethod
    def decode(cls, content: bytes) -> "Manifest":
        """Parses a manifest. Raises ArchiveError if this release cannot read it."""
        try:
            version = json.loads(content)["version"]
            if isinstance(version, int) and version > VERSION:
                raise ArchiveError(f"the export is of version {version}, and this server knows up to {VERSION}")
            found = cls.model_validate_json(content)
        except ArchiveError:
            raise
        except (ValidationError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise ArchiveError(f"{MANIFEST} is none of an export") from error
        if found.version != VERSION or not is_safe_id(IdKind.USER, found.user):
            raise ArchiveError(f"{MANIFEST} is none of an export")
        return found


class Closing(BaseModel):
    """The last entry: the number of entries before it, and the SHA-256 of
    `runekeep_storage.transfer.exports.archive.Digest`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    entries: int
    sha256: str

    def encode(self) -> bytes:
        return json.dumps(self.model_dump(), indent=2).encode()

    @classmethod
    def decode(cls, content: bytes) -> "Closing":
        """Parses the last entry. Raises ArchiveError."""
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise ArchiveError("the checksums of the export cannot be read") from error


def data_entry(table: str) -> str:
    return f"data/{table}.jsonl"


def messages_entry(session_id: str, index: int) -> str:
    """Returns the entry for the messages of an archive; with LIVE, for live messages."""
    return f"sessions/{session_id}/{'' if index == LIVE else f'history/archive_{index:03d}/'}messages.jsonl"


def output_entry(session_id: str, digest: str) -> str:
    """Returns the entry for a tool output that is stored outside its message."""
    return f"sessions/{session_id}/outputs/{digest}.txt"


def bucket_entry(session_id: str, digest: str) -> str:
    """Returns the entry for a bucket with its whole timeline."""
    return f"sessions/{session_id}/buckets/{digest}.json"


def memory_entry(uri: str, user: str) -> str:
    """Returns the entry for the file of a memory, at the place given by its URI."""
    return uri.removeprefix(f"{SCHEME}user/{user}/")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a table, one line each; for messages with their session."""

    name: str
    session: str = ""


@dataclass(frozen=True, slots=True)
class Blob:
    """A large value, identified by its SHA-256: a tool output, or a bucket with its whole timeline."""

    digest: str
    is_bucket: bool


class Order:
    """Classifies each entry and checks that it is allowed at its place. Starts after the manifest."""

    def __init__(self) -> None:
        self._tables = [*FIRST, "", *REST]
        self._session = ("", 0)

    def what(self, name: str) -> Table | Blob | None:
        """Returns what an entry holds; None for a file for people, which holds nothing that is not elsewhere. Raises
        ArchiveError."""
        if self._tables and self._tables[0] in ADDED and name != data_entry(self._tables[0]):
            self._tables.pop(0)
        if self._tables and self._tables[0] and name == data_entry(self._tables[0]):
            return Table(self._tables.pop(0))
        if self._tables and not self._tables[0]:
            found = self._of_session(name)
            if found is not False:
                return found
            self._tables.pop(0)
            return self.what(name)
        if not self._tables and _is_file(name) and name.partition("/")[0] in ("memories", "peers", "skills"):
            return None
        raise ArchiveError("the export has an entry that does not belong there")

    def end(self) -> None:
        """Raises ArchiveError if entries are missing."""
        if self._tables:
            raise ArchiveError("entries of the export are missing")

    def _of_session(self, name: str) -> Table | Blob | Literal[False] | None:
        """Returns False for an entry after the sessions."""
        if (found := _BLOB.fullmatch(name)) is not None:
            self._go_on(found["session"], 0)
            return Blob(found["output"] or found["bucket"], bool(found["bucket"]))
        if (found := _MESSAGES.fullmatch(name)) is not None:
            index = int(found["index"]) if found["index"] else LIVE
            self._go_on(found["session"], index)
            return Table("messages", found["session"])
        if name.startswith("sessions/") and (found := _VIEW.fullmatch(name)) is not None and _is_file(name):
            self._go_on(found["session"], 0)
            return None
        return False

    def _go_on(self, session: str, index: int) -> None:
        """Checks the order: sessions by id, the messages of each by archive; blobs and files for people may come
        anywhere within."""
        known, newest = self._session
        if session < known or (session == known and 0 < index <= newest):
            raise ArchiveError("the export has an entry that does not belong there")
        self._session = (session, max(index, newest) if session == known else index)


def _is_file(name: str) -> bool:
    """Returns whether a name cannot lead elsewhere when the archive is unpacked."""
    return all(part not in ("", ".", "..") for part in name.split("/")) and "\0" not in name and "\\" not in name
