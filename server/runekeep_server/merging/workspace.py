"""The drafts of memories, which operations change one after the other before anything is written."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.documents.filenames import FileNameError, memory_uri
from runekeep_schemas.documents.merge import coerce_fields, create, is_blank, still_holds
from runekeep_schemas.documents.render import default_abstract, default_overview, file_view, render_content
from runekeep_schemas.documents.uris import UriError, canonicalize
from runekeep_schemas.memory_types.coerce import FieldError
from runekeep_schemas.memory_types.model import VIEW_FIELDS, FieldValue, MemoryType
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.merging.batch import Batch, Run, Selection, joined
from runekeep_server.wire.basics import plain_values
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import memories
from runekeep_storage.records import Memory, MessageRun

SOURCES_KEPT = 256
"""Maximum of messages that a memory names; the newest are kept."""
MAX_ADDED_SOURCES = 8192
"""Maximum of messages that the memories of one output name in total. They are written while no other account can write
to SQLite."""
MIN_ADDED_SOURCES = 16
"""Messages that each memory may name even if the others use up the total."""

Fields = dict[str, FieldValue]


@dataclass(slots=True)
class Draft:
    """A memory in its current and its future state. `fields` is None if it does not exist or is deleted."""

    uri: str
    type: MemoryType
    peer: str
    current: Memory | None
    newest_version: int
    fields: Fields | None
    sources: list[dict[str, Any]] = field(default_factory=list)
    session_id: str = ""
    batch: Batch | None = None
    """Session and batch of the output, if one of its operations is based on messages."""
    origins: list[Run] = field(default_factory=list)
    """All messages of this output from which the memory comes, with others between them if there are too many runs.
    `sources` contains only the newest."""
    named: list[Run] = field(default_factory=list)
    """Messages that operations of this output name."""
    named_omitted: bool = False
    """Whether operations name more messages, which are too many to keep."""
    reasons: list[str] = field(default_factory=list)
    counted: bool = True
    """Whether an operation requested it. False for an initial memory of a type."""
    given: set[str] = field(default_factory=set)
    """Fields that an operation of this output changed."""
    wanted: bool = False
    """Whether an operation of this output wrote it, changed or not. Such a memory must not be deleted silently."""
    renamed_from: str = ""
    """The URI under which the memory is stored, if this output renames it."""
    renamed_to: "Draft | None" = None
    """The draft that took its place, if this output renames it."""
    created_at: int = 0
    """Creation time of the memory that this output renames, in microseconds since 1970; otherwise 0."""

    @classmethod
    def opened(cls, uri: str, type: MemoryType, peer: str, current: Memory | None, newest_version: int) -> Self:
        """Returns the draft of a memory in its current state, as `memories.with_newest_version` returned it."""
        fields = json.loads(current.fields) if current else None
        sources = json.loads(current.sources) if current else []
        return cls(uri, type, peer, current, newest_version, fields, sources)

    @property
    def before(self) -> Fields | None:
        return json.loads(self.current.fields) if self.current else None

    @property
    def changed(self) -> bool:
        return self.fields != self.before

    @property
    def is_empty(self) -> bool:
        """Whether the memory has only its type's initial content: a new memory, or an unchanged initial one."""
        if self.fields is None or not self.type.has_initial or not is_blank(self.type, self.content()):
            return False
        return self.current is None or _without_views(self.fields) == create(self.type, {})

    def take(self, fields: Fields, given_views: Sequence[str], why: str) -> None:
        """Takes new fields. Clears an abstract or overview that is not given and says what the new texts no longer
        say."""
        if self.fields is not None and _without_views(fields) != _without_views(self.fields):
            declared = {one.name for one in self.type.fields}
            names = set(self.type.key_fields)
            texts = {one.name for one in self.type.fields} - names
            # Names apart: a word that the text lost may still stand in the name.
            changes = [(_said(self.fields, some), _said(fields, some)) for some in (names, texts)]
            for view in VIEW_FIELDS:
                text = str(fields.get(view, ""))
                if not text or view in given_views or all(still_holds(text, *change) for change in changes):
                    continue
                if view in declared:
                    fields[view] = ""
                else:
                    fields.pop(view, None)
        self.fields = fields
        if why:
            self.reasons.append(why)

    def take_place_of(self, other: "Draft") -> None:
        """Takes all of a memory that gets the name of this one. The other one ends."""
        self.fields, self.given, self.wanted = other.fields, other.given, other.wanted
        self.sources, self.session_id, self.batch = other.sources, other.session_id, other.batch
        self.origins, self.named, self.named_omitted = other.origins, other.named, other.named_omitted
        self.renamed_from = other.renamed_from or other.uri
        self.created_at = other.created_at or (other.current.created_at if other.current else 0)
        self.reasons = [*other.reasons, f"renamed from {self.renamed_from}"]
        other.fields, other.sources, other.origins, other.named = None, [], [], []
        other.reasons, other.renamed_to = [f"renamed to {self.uri}"], self

    def name(self, messages: Selection) -> None:
        """Adds messages that an operation names."""
        self.batch = messages.batch
        self.named = joined(self.named, messages.runs())

    def come_from(self, session_id: str, messages: Selection, origins: list[Run], room: int) -> int:
        """Adds messages to the origins, and the newest of them, at most `room`, to the sources. Returns the number of
        added sources. `origins`: the complete new origins, see there."""
        self.session_id, self.batch, self.origins = session_id, messages.batch, origins
        known = {(source["session"], source["message_id"]) for source in self.sources}
        added = [
            {"session": session_id, "message_id": message.message_id, "sequence": message.sequence}
            for message in messages.newest(min(room, SOURCES_KEPT))
            if (session_id, message.message_id) not in known
        ]
        self.sources = [*self.sources, *added][-SOURCES_KEPT:]
        return len(added)

    def message_runs(self) -> tuple[MessageRun, ...]:
        """Returns `origins` in their stored form. The end of a renamed memory comes from the same messages as its new
        name: if they are erased, it gets its old name back."""
        if self.renamed_to is not None:
            return self.renamed_to.message_runs()
        return tuple(self.batch.message_runs(self.session_id, self.origins)) if self.batch is not None else ()

    @property
    def named_characters(self) -> int:
        """The total characters of `named_ids`."""
        return self.batch.id_characters(self.named) if self.batch is not None else 0

    def named_ids(self) -> list[str]:
        """Returns the ids of the messages that operations name, in order."""
        return self.batch.ids(self.named) if self.batch is not None else []

    def content(self) -> str:
        return render_content(self.type, self.fields) if self.fields is not None else ""

    def file(self) -> str:
        return file_view(self.type, self.fields) if self.fields is not None else ""

    def file_before(self) -> str:
        before = self.before
        return file_view(self.type, before) if before is not None else ""

    def abstract(self) -> str:
        assert self.fields is not None
        return str(self.fields.get("abstract", "")) or default_abstract(self.type, self.fields, self.content())

    def overview(self) -> str:
        assert self.fields is not None
        return str(self.fields.get("overview", "")) or default_overview(self.content())


def _without_views(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name not in VIEW_FIELDS}


def _said(fields: Fields, names: Collection[str]) -> str:
    """Returns the values of some fields of a memory without its views."""
    return "\n".join(str(value) for name, value in _without_views(fields).items() if name in names)


class Workspace:
    """Drafts by URI, all read in one transaction, at the current state or at `revision`: on first use, or earlier by
    `read_ahead`."""

    def __init__(self, tx: Tx, space: Space, revision: int = memories.LATEST) -> None:
        self._tx = tx
        self._space = space
        self._revision = revision
        self._versions_ahead: dict[str, tuple[Memory | None, int]] = {}
        self.drafts: dict[str, Draft] = {}

    async def read_ahead(self, operations: Iterable[pb.MemoryOperation], registry: Registry) -> None:
        """Reads the memories that the operations name, in few statements, for later calls of `open` and `type_of`.
        Discards what was read ahead before. Does nothing at an earlier revision, which is read rarely."""
        if self._revision != memories.LATEST:
            return
        uris = filter(None, (_named_uri(one, registry, self._space.user) for one in operations))
        wanted = [uri for uri in uris if uri not in self.drafts]
        self._versions_ahead = await memories.current_with_newest_versions(self._tx, self._space, wanted)

    async def open(self, uri: str, type: MemoryType, peer: str) -> Draft:
        """Returns the draft of a memory, which need not exist yet."""
        if uri not in self.drafts:
            current, newest = await self._load_version(uri)
            self.drafts[uri] = Draft.opened(uri, type, peer, current, newest)
        return self.drafts[uri]

    async def type_of(self, uri: str) -> str | None:
        """Returns the type name of an existing memory, or None."""
        if uri in self.drafts:
            draft = self.drafts[uri]
            return draft.type.name if draft.fields is not None else None
        current, _ = await self._load_version(uri)
        return current.memory_type if current else None

    async def _load_version(self, uri: str) -> tuple[Memory | None, int]:
        """Returns the version of a memory at the revision, if any, and the highest version that its URI ever had, or
        0."""
        if uri in self._versions_ahead:
            return self._versions_ahead[uri]
        return await memories.with_newest_version(self._tx, self._space, uri, self._revision)


def _named_uri(operation: pb.MemoryOperation, registry: Registry, user: str) -> str:
    """Returns the URI of the memory that an operation names, or an empty string if it cannot be determined. A write
    without a peer may open memories of other owners too, by its message ranges."""
    try:
        match operation.WhichOneof("operation"):
            case "write":
                type = registry.get(operation.write.memory_type)
                fields = coerce_fields(type, plain_values(operation.write.fields)) if type else {}
                return memory_uri(type, fields, user, operation.peer_id or None) if type else ""
            case "edit":
                return canonicalize(operation.edit.uri, user)
            case _:
                return canonicalize(operation.delete.uri, user)
    except (FieldError, FileNameError, UriError):
        return ""
