"""What an export is made of: its entries, in their order, and the first and the last of them.

`manifest.json`, then the entries of FIRST, then of each session, by id, what was said in it (`sessions/...`), then the
entries of REST, then the memories as files for people, then `checksums.json`. Order and names are fixed: what reads an
export needs no more of it at once than a few rows.
"""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.exports.archive import ArchiveError
from schemas.uris import SCHEME, IdKind, is_safe_id

VERSION: Final = 1
MANIFEST: Final = "manifest.json"
FIRST: Final = ("sessions", "jobs")
"""Tables that come before what was said: whatever comes later belongs to a session."""
REST: Final = (
    # Before the archives: passages of these are made of messages with what is described here.
    "image_descriptions",
    "archives",
    "turns",
    "turn_artifacts",
    "tool_outputs",
    "recalled",
    "usages",
    "tasks",
    "commits",
    "memories",
    "active_counts",
)
MOST_REVISIONS: Final = 2**50
"""Of a space; twice as many of them are still numbers that every language holds."""

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
"""In place of the index of an archive: messages that no commit has archived. No archive has so high a one."""

Count = Annotated[int, Field(ge=0, le=MOST_REVISIONS)]


class Counts(BaseModel):
    """How much there is of what, named as in SpaceContents of the contract."""

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
        """Raises ArchiveError for what this release cannot read."""
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
    """The last entry: how many entries came before it, and the SHA-256 of `schemas.exports.archive.Digest`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    entries: int
    sha256: str

    def encode(self) -> bytes:
        return json.dumps(self.model_dump(), indent=2).encode()

    @classmethod
    def decode(cls, content: bytes) -> "Closing":
        """Raises ArchiveError."""
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise ArchiveError("the checksums of the export cannot be read") from error


def data_entry(table: str) -> str:
    return f"data/{table}.jsonl"


def messages_entry(session_id: str, index: int) -> str:
    """Messages of an archive, or with LIVE those of none."""
    return f"sessions/{session_id}/{'' if index == LIVE else f'history/archive_{index:03d}/'}messages.jsonl"


def output_entry(session_id: str, digest: str) -> str:
    """A tool's output that is kept apart from its message."""
    return f"sessions/{session_id}/outputs/{digest}.txt"


def bucket_entry(session_id: str, digest: str) -> str:
    """A bucket with its whole timeline."""
    return f"sessions/{session_id}/buckets/{digest}.json"


def memory_entry(uri: str, user: str) -> str:
    """The file of a memory, where its URI has it."""
    return uri.removeprefix(f"{SCHEME}user/{user}/")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a table, a line each; of messages with their session."""

    name: str
    session: str = ""


@dataclass(frozen=True, slots=True)
class Blob:
    """A large value, by its SHA-256: a tool's output, or a bucket with its whole timeline."""

    digest: str
    is_bucket: bool


class Order:
    """Says of each entry what it is, and that it comes where it may. Begins behind the manifest."""

    def __init__(self) -> None:
        self._tables = [*FIRST, "", *REST]
        self._session = ("", 0)

    def what(self, name: str) -> Table | Blob | None:
        """None: a view for people, which tells nothing that is not elsewhere. Raises ArchiveError."""
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
        """Raises ArchiveError when entries are missing."""
        if self._tables:
            raise ArchiveError("entries of the export are missing")

    def _of_session(self, name: str) -> Table | Blob | Literal[False] | None:
        """False: an entry of what follows."""
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
        """Sessions by id, the messages of each by archive; blobs and views anywhere within."""
        known, newest = self._session
        if session < known or (session == known and 0 < index <= newest):
            raise ArchiveError("the export has an entry that does not belong there")
        self._session = (session, max(index, newest) if session == known else index)


def _is_file(name: str) -> bool:
    """Whether a name is one that leads nowhere else when the archive is unpacked."""
    return all(part not in ("", ".", "..") for part in name.split("/")) and "\0" not in name and "\\" not in name
