"""Memories while operations work on them, one after the other, before anything is written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from schemas.merge import create, is_blank
from schemas.render import default_abstract, default_overview, file_view, render_content
from schemas.types import VIEW_FIELDS, FieldValue, MemoryType
from server.apply.batch import Batch, Run, Selection, joined
from storage import memories
from storage.database import Space, Tx
from storage.records import Memory, MessageRun

SOURCES_KEPT = 256
"""Messages that a memory names; of a tool called ten thousand times the newest ones."""

Fields = dict[str, FieldValue]


@dataclass(slots=True)
class Draft:
    """A memory as it is and as it is going to be. `fields` None: it is not there, or deleted."""

    uri: str
    type: MemoryType
    peer: str
    current: Memory | None
    newest_version: int
    fields: Fields | None
    sources: list[dict[str, Any]] = field(default_factory=list)
    session_id: str = ""
    batch: Batch | None = None
    """Session and batch of the output, once an operation of it rests on messages."""
    origins: list[Run] = field(default_factory=list)
    """All messages that this output takes it from, and where they are too many runs others between them; of `sources`
    only the newest are kept."""
    named: list[Run] = field(default_factory=list)
    """Messages that operations of this output name."""
    named_omitted: bool = False
    """Whether they name others, which are too many to be kept."""
    reasons: list[str] = field(default_factory=list)
    counted: bool = True
    """Whether an operation asked for it; a memory that a type makes by itself was asked for by nobody."""
    given: set[str] = field(default_factory=set)
    """Fields that an operation of this output changed."""
    wanted: bool = False
    """Whether an operation of this output wrote it, changed or not: what it said must not be deleted without a word."""

    @classmethod
    def opened(cls, uri: str, type: MemoryType, peer: str, current: Memory | None, newest_version: int) -> Self:
        """The memory as it is now, and as `current_of` gave it."""
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
        """Whether a type made it by itself, or could have, and it says nothing: a new memory, or one as it was made."""
        if self.fields is None or not self.type.has_initial or not is_blank(self.type, self.content()):
            return False
        return self.current is None or _without_views(self.fields) == create(self.type, {})

    def take(self, fields: Fields, given_views: Sequence[str], why: str) -> None:
        """Takes new fields. An abstract or overview that was not given anew was of the old content and goes."""
        if self.fields is not None and _without_views(fields) != _without_views(self.fields):
            declared = {one.name for one in self.type.fields}
            for view in VIEW_FIELDS:
                if view in given_views:
                    continue
                if view in declared:
                    fields[view] = ""
                else:
                    fields.pop(view, None)
        self.fields = fields
        if why:
            self.reasons.append(why)

    def name(self, messages: Selection) -> None:
        """Adds messages that an operation names."""
        self.batch = messages.batch
        self.named = joined(self.named, messages.runs())

    def come_from(self, session_id: str, messages: Selection, origins: list[Run]) -> None:
        """Adds messages to those that it comes from. `origins`: all of its origins then, see there."""
        self.session_id, self.batch, self.origins = session_id, messages.batch, origins
        known = {(source["session"], source["message_id"]) for source in self.sources}
        for message in messages.newest(SOURCES_KEPT):
            if (session_id, message.message_id) not in known:
                source = {"session": session_id, "message_id": message.message_id, "sequence": message.sequence}
                self.sources.append(source)
        self.sources = self.sources[-SOURCES_KEPT:]

    def message_runs(self) -> tuple[MessageRun, ...]:
        """Returns `origins` as they are stored."""
        return tuple(self.batch.message_runs(self.session_id, self.origins)) if self.batch is not None else ()

    @property
    def named_characters(self) -> int:
        """How many characters `named_ids` has in all."""
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


class Workspace:
    """Drafts by URI, read by one transaction when first touched: as they are now, or as they were at `revision`."""

    def __init__(self, tx: Tx, space: Space, revision: int = memories.LATEST) -> None:
        self._tx = tx
        self._space = space
        self._revision = revision
        self.drafts: dict[str, Draft] = {}

    async def open(self, uri: str, type: MemoryType, peer: str) -> Draft:
        """The draft of a memory, which need not be there yet."""
        if uri not in self.drafts:
            current, newest = await current_of(self._tx, self._space, uri, self._revision)
            self.drafts[uri] = Draft.opened(uri, type, peer, current, newest)
        return self.drafts[uri]

    async def type_of(self, uri: str) -> str | None:
        """Type name of a memory that is there now."""
        if uri in self.drafts:
            draft = self.drafts[uri]
            return draft.type.name if draft.fields is not None else None
        current, _ = await current_of(self._tx, self._space, uri, self._revision)
        return current.memory_type if current else None


async def current_of(tx: Tx, space: Space, uri: str, revision: int = memories.LATEST) -> tuple[Memory | None, int]:
    """The version of a memory alive at `revision`, if any, and the highest that its URI ever had, 0 for none."""
    return await memories.with_newest_version(tx, space, uri, revision)
