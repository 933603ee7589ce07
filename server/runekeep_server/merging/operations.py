"""Checks the operations of an output and merges them into drafts, one by one: an invalid one never affects the
others."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.documents.filenames import FileNameError, memory_uri
from runekeep_schemas.documents.merge import (
    FieldChange,
    MergeError,
    Rename,
    Set,
    check_growth,
    coerce_fields,
    create,
    merge_write,
    update,
)
from runekeep_schemas.documents.render import render_content, says_nothing
from runekeep_schemas.documents.uris import Place, UriError, canonicalize, parse
from runekeep_schemas.memory_types.coerce import FieldError
from runekeep_schemas.memory_types.model import VIEW_FIELDS, MemoryType
from runekeep_schemas.session_skills import SESSION_SKILLS, WHEN_EXTRACTED
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.merging.batch import Selection, joined
from runekeep_server.merging.counts import BatchCounts, counter_fields, counters_of, within_room
from runekeep_server.merging.effects import Effect
from runekeep_server.merging.memory_size import memory_size
from runekeep_server.merging.outcome import NO_OPERATION, OperationRef, Outcome
from runekeep_server.merging.recognition import Trait
from runekeep_server.merging.routing import SELF, Router, Skipped
from runekeep_server.merging.superseded import superseded
from runekeep_server.merging.workspace import (
    MAX_ADDED_SOURCES,
    MIN_ADDED_SOURCES,
    SOURCES_KEPT,
    Draft,
    Fields,
    Workspace,
)
from runekeep_server.wire.basics import field_change, plain_values
from runekeep_storage.database import Space

_COUNTED: Final = "counted from the records of the batch"
"""The reason of a change that the server makes by itself."""
_TYPE_NAME_LENGTH: Final = 64
"""Maximum characters of a type name in a report of a left-out operation."""
MAX_ORIGIN_RUNS: Final = 2048
"""Maximum of runs of consecutive messages from which the memories of one output come, in total. Above it, runs are
joined to fewer and longer ones. Each run is a row that the commit's transaction writes while no other account can write
to SQLite."""
MAX_NAMED_RUNS: Final = 16_384
"""Maximum of runs of messages that the diff of one output names. They stay in memory until it is written."""
READ_AHEAD_OPERATIONS: Final = 16
"""Number of operations whose memories are read together before they are merged."""
MAX_SUPERSEDED: Final = 256
"""Maximum of superseded memories that are looked up for one output."""


class _Refused(Exception):
    """An invalid operation. `reason` is a stable word; the message tells the extractor what to fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of the server for all outputs.

    `max_memory_bytes`: maximum size of a memory in an answer; an operation that makes a larger one is refused.
    `review_superseded`: memories that a new one supersedes are kept and reported, not deleted.
    """

    max_memory_bytes: int
    review_superseded: bool = False


class Merger:
    """Merges the operations of one output, in order."""

    def __init__(
        self,
        registry: Registry,
        router: Router,
        workspace: Workspace,
        space: Space,
        session_id: str,
        rules: Rules,
        counts: BatchCounts,
    ) -> None:
        """`counts`: the batch's counts, which are added to memories of tools and skills whatever the operations say."""
        self._registry = registry
        self._rules = rules
        self._counts = counts
        self._router = router
        self._workspace = workspace
        self._space = space
        self._session_id = session_id
        self._deleted: Counter[str] = Counter()
        self._origin_runs = 0
        self._named_runs = 0
        self._added_sources = 0
        self._superseded = 0
        self.outcome = Outcome()

    async def initial_memories(self, types: Sequence[str]) -> None:
        """Creates the initial memories of types if they do not exist yet. An initial memory without content, such as a
        profile with only its heading, is left to the first operation that has content."""
        for name in types:
            type = self._registry.get(name)
            if type is not None and type.has_initial:
                fields = create(type, {})
                if says_nothing(render_content(type, fields)):
                    continue
                draft = await self._workspace.open(memory_uri(type, fields, self._space.user), type, SELF)
                if draft.fields is None and not draft.newest_version:
                    draft.fields, draft.counted = fields, False
                    draft.reasons.append(f"every {name} begins so")

    async def drop_empty_memories(self, types: Sequence[str]) -> None:
        """Drops memories with only their type's initial content: new ones, and those that earlier releases created for
        every user. Call it after `merge`."""
        for name in types:
            type = self._registry.get(name)
            if type is not None and type.has_initial:
                await self._workspace.open(memory_uri(type, create(type, {}), self._space.user), type, SELF)
        for draft in self._workspace.drafts.values():
            if draft.is_empty:
                if draft.wanted:
                    self.outcome.unchanged[draft.type.name] += 1
                draft.fields, draft.counted = None, False
                draft.reasons.append(f"this {draft.type.name} says nothing")

    async def merge(self, operations: Sequence[pb.MemoryOperation]) -> Outcome:
        for index, operation in enumerate(operations):
            if index % READ_AHEAD_OPERATIONS == 0:
                await self._workspace.read_ahead(operations[index : index + READ_AHEAD_OPERATIONS], self._registry)
            place = OperationRef(index)
            try:
                self.outcome.taken += await self._one(operation, place)
            except (_Refused, MergeError, FieldError, FileNameError, UriError) as error:
                left_out = place.left_out(_word(error), str(error))
                # The server counts by itself: a worker's count is not worth a repair, which costs tokens.
                (self.outcome.skipped if place.counting else self.outcome.rejected).append(left_out)
            self.outcome.traits.append(Trait.of(operation, place.uri, place.memory_type))
        await self._add_counts()
        return self.outcome

    async def _add_counts(self) -> None:
        """Adds the batch's counts of each tool and skill to its memory, which is created if needed."""
        if self._counts.omitted:
            what = f"{self._counts.omitted} tools and skills of the batch are not counted: it names too many"
            self._skip(OperationRef(NO_OPERATION), Skipped("too_many_names", what))
        for key, tally in self._counts.tallies.items():
            name, owner, _ = key
            type = self._registry.get(name)
            if type is None or not counters_of(type) or not self._router.allows_type(name):
                continue
            if self._router.refuse_owner(owner) is not None:
                continue
            place = OperationRef(NO_OPERATION, name)
            raw = counter_fields(type, key, tally)
            if not any(raw[counter] for counter in counters_of(type)):
                continue
            try:
                place.uri = memory_uri(type, coerce_fields(type, raw), self._space.user, owner or None)
                draft = await self._workspace.open(place.uri, type, owner)
                raw = within_room(raw, draft.fields)
                fields = create(type, raw) if draft.fields is None else merge_write(type, draft.fields, raw)
            except (MergeError, FieldError, FileNameError, UriError) as error:
                # For example, a name that is no valid file name. No repair can fix it, and the commit must not fail.
                self.outcome.skipped.append(place.left_out(_word(error), str(error)))
                continue
            # The views describe the tool, not its counters, so they stay.
            given = [*raw, *VIEW_FIELDS]
            messages = self._router.batch.select((one, one) for one in tally.sequences)
            assert messages is not None, "they are of the batch"
            await self._take(draft, fields, given, messages, _COUNTED, place)

    async def _one(self, operation: pb.MemoryOperation, place: OperationRef) -> bool:
        """Merges an operation. Returns whether it was merged and not skipped."""
        match operation.WhichOneof("operation"):
            case "write":
                return await self._write(operation, place)
            case "edit":
                return await self._edit(operation, place)
            case _:
                return await self._delete(operation, place)

    async def _write(self, operation: pb.MemoryOperation, place: OperationRef) -> bool:
        write = operation.write
        type = self._type(write.memory_type, place)
        if type is None:
            return False
        raw = plain_values(write.fields)
        raw |= {name: text for name in VIEW_FIELDS if (text := getattr(write, name))}
        targets = self._router.route(type.name, operation.peer_id, operation.ranges)
        if isinstance(targets, Skipped):
            self._skip(place, targets)
            return False
        counters = counters_of(type)
        raw = {name: given for name, given in raw.items() if name not in counters}
        place.counting = bool(counters) and len(raw) == 1
        fields = coerce_fields(type, raw)
        taken = []
        unrecorded = False
        for target in targets:
            peer = target.owner or None
            place.uri = memory_uri(type, fields, self._space.user, peer)
            draft = await self._workspace.open(place.uri, type, target.owner)
            if counters and draft.fields is None and not self._counts.hold(type, target.owner, fields):
                unrecorded = True
                continue
            if draft.fields is not None and not type.mergeable and not _same(draft.fields, fields):
                # Two different events with the same name are two memories: the second gets another name.
                place.uri = _beside(place.uri, fields)
                draft = await self._workspace.open(place.uri, type, target.owner)
            if draft.fields is None:
                merged = create(type, raw)
            elif type.mergeable:
                merged = merge_write(type, draft.fields, raw)
                _check_first(draft, merged, list(fields))
            else:
                # The same event again; different views do not make it another event.
                merged = draft.fields
            self._check_size(type, merged, draft, target.messages)
            taken.append((draft, merged, target.messages))
        if unrecorded and not taken:
            self._skip(place, Skipped("not_in_records", "no record of the batch names the tool or skill"))
            return False
        # Only after all checks: an operation that one target refuses changes none of them.
        changed = [
            await self._take(draft, merged, list(raw), messages, operation.reason, place)
            for draft, merged, messages in taken
        ]
        if place.counting:
            self.outcome.counting += 1
        elif not any(changed):
            self.outcome.unchanged[type.name] += 1
        return True

    async def _edit(self, operation: pb.MemoryOperation, place: OperationRef) -> bool:
        opened = await self._existing(operation.edit.uri, operation, place)
        if opened is None:
            return False
        draft, messages = opened
        counters = counters_of(draft.type)
        changes: dict[str, FieldChange] = {}
        for patch in operation.edit.patches:
            if patch.field in changes:
                raise _Refused("field_invalid", f"{patch.field} is named twice in one edit: put its changes in one")
            if patch.field not in counters:
                changes[patch.field] = field_change(patch)
        if not changes:
            self.outcome.unchanged[draft.type.name] += 1
            return True
        assert draft.fields is not None
        fields = update(draft.type, draft.fields, changes)
        for name in changes:
            field = draft.type.field(name)
            check_growth(field, draft.fields.get(name, field.zero), fields.get(name, field.zero))
        whole = [name for name, change in changes.items() if isinstance(change, Set)]
        _check_first(draft, fields, whole)
        self._check_size(draft.type, fields, draft, messages)
        if any(isinstance(change, Rename) for change in changes.values()):
            draft = await self._renamed(draft, fields, place.index)
        if not await self._take(draft, fields, list(changes), messages, operation.reason, place):
            self.outcome.unchanged[draft.type.name] += 1
        return True

    async def _renamed(self, draft: Draft, fields: Fields, operation_index: int) -> Draft:
        """Moves a memory to the URI of its new name. Returns its draft there. Raises _Refused if the memory must keep
        its name, or another one has the new name."""
        if counters_of(draft.type):
            raise _Refused("field_invalid", f"{draft.type.name} keep the names of the records")
        uri = memory_uri(draft.type, fields, self._space.user, draft.peer or None)
        if uri == draft.uri:
            return draft
        there = await self._workspace.open(uri, draft.type, draft.peer)
        if there.fields is not None:
            what = f"{uri} has this name: put what is missing there into one edit of it, and delete this one"
            raise _Refused("name_taken", what)
        self.outcome.effects.append(Effect(operation_index, draft.uri, draft.type, draft.fields, None, is_move=True))
        there.take_place_of(draft)
        return there

    async def _delete(self, operation: pb.MemoryOperation, place: OperationRef) -> bool:
        opened = await self._existing(operation.delete.uri, operation, place)
        if opened is None:
            return False
        draft, messages = opened
        self._guard_delete(draft.type, messages)
        self._take_away(draft, messages, operation.reason, place.index)
        return True

    def _take_away(self, draft: Draft, messages: Selection, reason: str, operation_index: int) -> None:
        """Deletes a memory. Raises _Refused if it must not be deleted."""
        if draft.wanted:
            what = "an earlier operation of this output writes this memory: leave out the one or the other"
            raise _Refused("written_then_deleted", what)
        self._deleted[draft.type.name] += 1
        self.outcome.effects.append(Effect(operation_index, draft.uri, draft.type, draft.fields, None))
        draft.fields = None
        draft.counted = True
        # If the same output writes it again, it is another memory, which does not come from these messages.
        draft.sources = []
        draft.reasons.append(reason)
        self._name(draft, messages)

    def _guard_delete(self, type: MemoryType, messages: Selection) -> None:
        """Raises _Refused if the type forbids the deletion: one misunderstanding of a model must not delete a user's
        memories."""
        if not type.max_deletes:
            raise _Refused("too_many_deletes", f"{type.name} are never deleted by a commit: edit what is wrong")
        if self._deleted[type.name] >= type.max_deletes:
            what = f"one commit may delete {type.max_deletes} {type.name}: leave out those that matter least"
            raise _Refused("too_many_deletes", what)
        if type.delete_evidence and not messages:
            raise _Refused("evidence_missing", "a delete names the messages that show the memory to be wrong")

    async def _existing(
        self, named: str, operation: pb.MemoryOperation, place: OperationRef
    ) -> tuple[Draft, Selection] | None:
        """Returns the draft of an edit or a delete, or None if it was skipped."""
        place.uri = uri = canonicalize(named, self._space.user)
        parsed = parse(uri)
        if parsed.kind not in (Place.MEMORIES, Place.SKILLS):
            raise _Refused("not_found", "the URI is of no memory")
        name = await self._workspace.type_of(uri)
        if name is None:
            raise _Refused("not_found", "there is no memory at the URI: write it, or leave it out")
        type = self._type(name, place)
        if type is None:
            return None
        owner = parsed.peer or SELF
        routed = self._router.route_to(owner, type.name, operation.peer_id, operation.ranges)
        if isinstance(routed, Skipped):
            self._skip(place, routed)
            return None
        return await self._workspace.open(uri, type, owner), routed.messages

    def _type(self, name: str, place: OperationRef) -> MemoryType | None:
        """Returns the type if this commit may write it. Otherwise skips the operation, or raises _Refused for an
        unknown type."""
        # An invalid name may be as long as an operation.
        place.memory_type = name[:_TYPE_NAME_LENGTH]
        type = SESSION_SKILLS if name == SESSION_SKILLS.name else self._registry.get(name)
        if type is None:
            raise _Refused("field_invalid", "memory_type names no type that was given")
        if not self._router.allows_type(name):
            left_out = "the policy of this commit leaves the type out"
            if type is SESSION_SKILLS:
                left_out = f"session skills are extracted only if {WHEN_EXTRACTED}"
            self._skip(place, Skipped("type_filtered", left_out))
            return None
        return type

    def _check_size(self, type: MemoryType, fields: Fields, draft: Draft, messages: Selection) -> None:
        """Raises _Refused for a memory that does not fit into an answer."""
        named = min(len(draft.sources) + len(self._origins_of(messages)), SOURCES_KEPT)
        size = memory_size(type, fields, named)
        if fields != draft.fields and size > (limit := self._rules.max_memory_bytes):
            what = f"the memory would take {size} bytes, and {limit} is the limit: keep it shorter"
            raise _Refused("too_large", what)

    def _origins_of(self, messages: Selection) -> Selection:
        """Returns the origins of a memory. If an operation names no messages, they are the whole batch: erasing a
        message must remove everything that comes from it."""
        return messages or self._router.batch.everything

    def _come_from(self, draft: Draft, messages: Selection) -> None:
        """Adds messages to the origins of a memory.

        If there are too many runs for the transaction of the commit, the origins include messages between them: erasing
        those then erases the memory too, and erasing a true origin always does.
        """
        room = MAX_ORIGIN_RUNS - self._origin_runs + len(draft.origins)
        origins = draft.origins
        for some in (messages, *messages.coarser()):
            # Counted first, because listing them takes time.
            if some.run_count <= MAX_ORIGIN_RUNS:
                origins = joined(draft.origins, some.runs())
                if len(origins) <= room:
                    break
        self._origin_runs += len(origins) - len(draft.origins)
        room = max(MAX_ADDED_SOURCES - self._added_sources, MIN_ADDED_SOURCES)
        self._added_sources += draft.come_from(self._session_id, messages, origins, room)

    def _name(self, draft: Draft, messages: Selection) -> None:
        """Adds messages to those that the diff names for a memory, unless they do not fit into the diff."""
        if self._named_runs + messages.run_count > MAX_NAMED_RUNS:
            draft.named_omitted = True
            return
        before = len(draft.named)
        draft.name(messages)
        self._named_runs += len(draft.named) - before

    async def _take(
        self,
        draft: Draft,
        fields: Fields,
        given: list[str],
        messages: Selection,
        reason: str,
        place: OperationRef,
    ) -> bool:
        """Takes the new fields of a memory. Returns whether they changed it."""
        draft.wanted = True
        self.outcome.effects.append(Effect(place.index, draft.uri, draft.type, draft.fields, fields))
        if fields == draft.fields:
            return False
        draft.counted = True
        before = draft.fields or {}
        draft.given |= {name for name in given if fields.get(name) != before.get(name)}
        views = [name for name in given if name in VIEW_FIELDS]
        draft.take(fields, views, reason)
        self._name(draft, messages)
        self._come_from(draft, self._origins_of(messages))
        # One by one: each costs a file name and a read from the store.
        for uri in superseded(draft.type, before, fields, draft.uri, self._space.user):
            self._superseded += 1
            if self._superseded > MAX_SUPERSEDED:
                what = f"of what the memories of one output supersede {MAX_SUPERSEDED} are looked at: the rest stays"
                self._stays(draft, draft.uri, "too_many_deletes", what, place.index)
                break
            await self._supersede(uri, draft, messages, reason, place.index)
        return True

    async def _supersede(self, uri: str, by: Draft, messages: Selection, reason: str, operation_index: int) -> None:
        """Deletes a memory that another one supersedes. If it must stay, reports why; the other memory is not
        affected."""
        try:
            if await self._workspace.type_of(uri) != by.type.name:
                raise _Refused("not_found", f"{by.uri} supersedes it, and there is no such memory")
            if self._rules.review_superseded:
                raise _Refused("review_asked", f"{by.uri} supersedes it: delete it if that is right")
            # The new memory is the evidence.
            self._guard_delete(by.type, self._origins_of(messages))
            old = await self._workspace.open(uri, by.type, by.peer)
            why = f"superseded by {by.uri}" + (f": {reason}" if reason else "")
            self._take_away(old, messages, why, operation_index)
        except _Refused as stays:
            self.outcome.effects.append(Effect(operation_index, uri, by.type, None, None, is_blocked=True))
            self._stays(by, uri, stays.reason, str(stays), operation_index)

    def _stays(self, by: Draft, uri: str, reason: str, message: str, operation_index: int) -> None:
        place = OperationRef(operation_index, by.type.name, uri)
        self.outcome.not_superseded.append(place.left_out(reason, message))

    def _skip(self, place: OperationRef, skipped: Skipped) -> None:
        self.outcome.skipped.append(place.left_out(skipped.reason, skipped.message))


def _word(error: Exception) -> str:
    if isinstance(error, _Refused):
        return error.reason
    if isinstance(error, MergeError) and error.block_index is not None:
        return "patch_not_applicable"
    return "uri_invalid" if isinstance(error, UriError) else "field_invalid"


def _check_first(draft: Draft, after: Fields, whole: Sequence[str]) -> None:
    """Raises _Refused if a whole value would replace one that an earlier operation of this output gave.

    Counters add up and patches apply to the current text, but of two whole texts one would be lost silently. Views are
    exempt: they belong to the content that they describe.
    """
    for name in whole:
        free = name in VIEW_FIELDS or draft.type.field(name).merge_rule.combine is not None
        if name in draft.given and not free and after.get(name) != (draft.fields or {}).get(name):
            what = f"{name}: an earlier operation of this output gives it another value: put both into one operation"
            raise _Refused("given_twice", what)


def _same(there: Fields, given: Fields) -> bool:
    return all(there.get(name) == value for name, value in given.items() if value != "" and name not in VIEW_FIELDS)


def _beside(uri: str, fields: Fields) -> str:
    """Returns a name next to one that is taken. The same content always gets the same name."""
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:10]
    return f"{uri.removesuffix('.md')}~{digest}.md"
