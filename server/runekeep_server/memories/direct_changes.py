"""Parses changes of memories by callers, and applies them to the current memories.

This module does not access the store. A malformed request is INVALID_ARGUMENT and names its fields. A change that the
place or the type does not allow is WRITE_NOT_ALLOWED. A base version that is not the current one is VERSION_MISMATCH.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import grpc

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.documents.filenames import FileNameError, memory_uri
from runekeep_schemas.documents.merge import (
    FieldChange,
    MergeError,
    Patch,
    Rename,
    Set,
    coerce_fields,
    replace_all,
    update,
)
from runekeep_schemas.documents.uris import (
    ABSTRACT_FILE,
    OVERVIEW_FILE,
    IdKind,
    Place,
    UriError,
    is_safe_id,
    parse,
)
from runekeep_schemas.memory_types.coerce import FieldError
from runekeep_schemas.memory_types.model import VIEW_FIELDS, MemoryType
from runekeep_schemas.session_skills import SESSION_SKILLS, WHEN_EXTRACTED
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.merging.memory_size import memory_size
from runekeep_server.merging.workspace import Draft, Fields
from runekeep_server.protocol import errors
from runekeep_server.protocol.api_error import ApiError, FieldViolation
from runekeep_server.protocol.errors import invalid
from runekeep_server.wire.basics import canonical, field_change, plain_values
from runekeep_storage.records import Memory


@dataclass(frozen=True, slots=True)
class Put:
    """A whole memory. `path`: its path in the request. `given`: values by field name, including the views."""

    path: str
    uri: str
    base_version: int
    type: MemoryType
    peer: str
    given: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes of fields, in the order of the request."""

    path: str
    uri: str
    base_version: int
    changes: Mapping[str, FieldChange]


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion of a memory."""

    path: str
    uri: str
    base_version: int


Change = Put | Edit | Delete


def read_changes(registry: Registry, user: str, mutations: Sequence[pb.MemoryMutation]) -> list[Change]:
    """Returns the changes with canonical URIs, at most one for each memory. Raises ApiError that names all invalid
    fields."""
    changes: list[Change] = []
    violations: list[FieldViolation] = []
    refused: ApiError | None = None
    named: dict[str, str] = {}
    for number, mutation in enumerate(mutations):
        path = f"changes[{number}]"
        try:
            change = _read(registry, user, mutation, path)
        except ApiError as error:
            if error.code is grpc.StatusCode.INVALID_ARGUMENT:
                violations += error.field_violations
            else:
                refused = refused or error
            continue
        if change.uri in named:
            what = f"is about the same memory as {named[change.uri]}: make one change of the two"
            violations.append(FieldViolation(path, what))
        named.setdefault(change.uri, path)
        changes.append(change)
    if violations:
        raise errors.invalid_fields(violations)
    if refused is not None:
        raise refused
    return changes


def check_texts(changes: Sequence[Change], max_bytes: int) -> None:
    """Raises ApiError TOO_LARGE for a text that is longer than a memory may be. Call it before the texts are scanned
    for secrets."""
    for change in changes:
        if isinstance(change, Delete):
            continue
        for name, text in _texts(change):
            if len(text) > max_bytes:
                raise _too_large(change, name, len(text.encode()), max_bytes)


def texts_of(changes: Sequence[Change]) -> list[tuple[str, str]]:
    """Returns the texts that the changes bring, with the paths of their fields in the request."""
    return [
        (_path_of(change, name), text)
        for change in changes
        if not isinstance(change, Delete)
        for name, text in _texts(change)
    ]


def carried_out(change: Change, registry: Registry, current: Memory | None, newest_version: int) -> Draft:
    """Returns the memory after the change. Raises ApiError."""
    version = current.version if current else 0
    if version != change.base_version:
        raise errors.aborted_version("memory", change.uri, expected=change.base_version, current=version)
    if isinstance(change, Put):
        draft = Draft.opened(change.uri, change.type, change.peer, current, newest_version)
        fields = _merged(change, lambda: replace_all(change.type, change.given, draft.fields))
        if fields != draft.fields:
            draft.fields = fields
            # The new content does not come from the messages of the previous memory.
            draft.sources = []
        return draft
    assert current is not None  # Otherwise its version is 0, unlike any `base_version` here.
    type = registry.get(current.memory_type)
    if isinstance(change, Delete):
        # A memory of a removed type can still be deleted: only the type's name is stored.
        type = type or MemoryType(current.memory_type, description="", directory="", filename_template="")
        draft = Draft.opened(change.uri, type, current.peer_id, current, newest_version)
        draft.fields = None
        draft.sources = []
        return draft
    if type is None:
        what = f"{current.memory_type} is no type of this server any more"
        raise errors.write_not_allowed(change.uri, what, "Put it as a memory of another type, or delete it")
    draft = Draft.opened(change.uri, type, current.peer_id, current, newest_version)
    fields = _merged(change, lambda: update(type, draft.fields or {}, change.changes))
    draft.take(fields, [name for name in change.changes if name in VIEW_FIELDS], why="")
    return draft


def check_size(change: Change, draft: Draft, most_bytes: int) -> None:
    """Raises ApiError TOO_LARGE, with the largest field, for a memory that does not fit into an answer."""
    if isinstance(change, Delete) or not draft.changed:
        return
    fields = draft.fields or {}
    size = memory_size(draft.type, fields, len(draft.sources))
    if size > most_bytes:
        given = change.given if isinstance(change, Put) else change.changes
        longest = max(given, key=lambda name: len(str(fields.get(name, ""))), default="")
        raise _too_large(change, longest, size, most_bytes)


def _too_large(change: Put | Edit, field: str, size: int, max_bytes: int) -> ApiError:
    todo = "Make it shorter, or split it into several memories"
    return errors.field_too_large(_path_of(change, field), size, max_bytes, todo)


def _read(registry: Registry, user: str, mutation: pb.MemoryMutation, path: str) -> Change:
    base = mutation.base_version
    kind = mutation.WhichOneof("change")
    if kind == "put":
        return _put(registry, user, mutation.put, base, f"{path}.put")
    if not base:
        what = "is 0, which says that there is no such memory"
        raise invalid(f"{path}.base_version", what, "Give the version that the change was made on")
    if kind == "edit":
        uri = _memory(f"{path}.edit.uri", mutation.edit.uri, user)
        return Edit(f"{path}.edit", uri, base, _changes(mutation.edit, f"{path}.edit"))
    return Delete(f"{path}.delete", _memory(f"{path}.delete.uri", mutation.delete.uri, user), base)


def _put(registry: Registry, user: str, put: pb.PutMemory, base: int, path: str) -> Put:
    if put.memory_type == SESSION_SKILLS.name:
        raise _no_skills(SESSION_SKILLS.name)
    type = registry.get(put.memory_type)
    if type is None:
        raise invalid(f"{path}.memory_type", "is no memory type", "See ListMemoryTypes")
    if put.peer_id and not is_safe_id(IdKind.PEER, put.peer_id):
        todo = "Give 1 to 64 letters, digits, dots, underscores or dashes, beginning with a letter or digit"
        raise invalid(f"{path}.peer_id", "is no id of a peer", todo)
    if put.peer_id and type.agent_only:
        what = f"is set, and {type.name} are about the agent's own doing, never about a peer"
        raise invalid(f"{path}.peer_id", what, "Leave it empty")
    given = plain_values(put.fields)
    for name in VIEW_FIELDS:
        text = getattr(put, name)
        if text and given.get(name, text) != text:
            raise invalid(f"{path}.{name}", "is given twice, with two texts", "Leave it out of the fields")
        if text:
            given[name] = text
    try:
        uri = memory_uri(type, coerce_fields(type, given), user, put.peer_id or None)
    except FieldError as error:
        raise invalid(_put_field(path, error.field), error.reason) from error
    except (FileNameError, UriError) as error:
        raise invalid(f"{path}.fields", str(error)) from error
    made = Put(path, uri, base, type, put.peer_id, given)
    _merged(made, lambda: replace_all(type, given))
    if base and not type.mergeable:
        raise _added_only(type, uri)
    return made


def _changes(edit: pb.EditMemory, path: str) -> dict[str, FieldChange]:
    changes: dict[str, FieldChange] = {}
    for number, patch in enumerate(edit.patches):
        if patch.field in changes:
            raise invalid(f"{path}.patches[{number}].field", "is named twice", "Put its changes into one patch")
        change = field_change(patch)
        if isinstance(change, Rename):
            todo = "Put the memory under its new name, and delete this one"
            raise invalid(f"{path}.patches[{number}].rename", "is for the operations of extractors", todo)
        if isinstance(change, Set) and isinstance(change.value, str) and not change.value.strip():
            what = "is empty, and an empty value changes nothing"
            raise invalid(f"{path}.patches[{number}].value", what, "To empty a field, put the memory without it")
        changes[patch.field] = change
    return changes


def _memory(field: str, named: str, user: str) -> str:
    """Returns the canonical URI of a place where memories may be."""
    uri = canonical(field, named, user)
    parsed = parse(uri)
    if parsed.kind is Place.SKILLS:
        raise _no_skills(uri)
    if parsed.kind is not Place.MEMORIES:
        raise errors.write_not_allowed(uri, "Only memories are written by hand", "Name one below `memories`")
    if parsed.path and parsed.path[-1] in (ABSTRACT_FILE, OVERVIEW_FILE):
        raise errors.write_not_allowed(
            uri, "The views of a directory are made from what is in it", "Change the memories there"
        )
    return uri


def _merged(change: Put | Edit, merge: Callable[[], Fields]) -> Fields:
    try:
        return merge()
    except MergeError as error:
        path = _path_of(change, error.field)
        if error.block_index is not None:
            what = f"{path}, on {error.field} of {change.uri}: {error.reason}"
            raise errors.patch_not_applicable(change.uri, what) from error
        raise invalid(path, error.reason) from error
    except FieldError as error:
        raise invalid(_path_of(change, error.field), error.reason) from error


def _texts(change: Put | Edit) -> Iterator[tuple[str, str]]:
    """Yields the texts that a change would write, by field."""
    if isinstance(change, Put):
        # Numbers too: in a text field, a number becomes text.
        yield from ((name, str(value)) for name, value in change.given.items())
        return
    for name, made in change.changes.items():
        if isinstance(made, Set):
            yield name, str(made.value)
        elif isinstance(made, Patch):
            yield from ((name, block.replace) for block in made.blocks)


def _path_of(change: Put | Edit, field: str) -> str:
    if isinstance(change, Put):
        return _put_field(change.path, field)
    return f"{change.path}.patches[{list(change.changes).index(field)}]"


def _put_field(path: str, field: str) -> str:
    return f"{path}.{field}" if field in VIEW_FIELDS else f"{path}.fields[{json.dumps(field, ensure_ascii=False)}]"


def _added_only(type: MemoryType, uri: str) -> ApiError:
    what = f"{type.name} are only added, and this one exists"
    return errors.write_not_allowed(uri, what, "Put a new one under a name of its own, or correct this one by an edit")


def _no_skills(name: str) -> ApiError:
    return errors.write_not_allowed(
        name,
        f"Only commits write session skills, if {WHEN_EXTRACTED}",
        "Write a memory of one of the types in ListMemoryTypes",
    )
