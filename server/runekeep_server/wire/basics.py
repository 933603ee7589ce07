"""Converts times, durations, names, field values and field changes."""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from runekeep_schemas.documents.merge import FieldChange, Patch, Rename, Set
from runekeep_schemas.documents.patch import SearchReplaceBlock
from runekeep_schemas.documents.uris import UriError, canonicalize, parse, session_uri
from runekeep_schemas.memory_types.model import FieldType, MemoryType, Review
from runekeep_server.protocol.errors import invalid

REVIEWS = {
    Review.NONE: common_pb2.REVIEW_MODE_UNSPECIFIED,
    Review.DESTRUCTIVE: common_pb2.REVIEW_MODE_DESTRUCTIVE,
    Review.ALL: common_pb2.REVIEW_MODE_ALL,
}


def timestamp(microseconds: int) -> Timestamp | None:
    """Returns None for 0, which means never."""
    if not microseconds:
        return None
    stamp = Timestamp()
    stamp.FromMicroseconds(microseconds)
    return stamp


def microseconds(stamp: Timestamp) -> int:
    return int(stamp.ToMicroseconds())


def duration(seconds: float) -> Duration:
    value = Duration()
    value.FromNanoseconds(round(seconds * 1e9))
    return value


def canonical(field: str, uri: str, user: str) -> str:
    """Returns the canonical form of a URI of the caller. Raises ApiError INVALID_ARGUMENT for an invalid URI and for
    another user's space."""
    try:
        return canonicalize(uri, user)
    except UriError as error:
        raise invalid(field, f"is no URI of yours: {error.reason}", "See the names in common.proto") from error


def session_id(field: str, name: str, user: str) -> str:
    """Returns the session id from a field that accepts a URI or a bare id. Raises ApiError."""
    if "://" not in name:
        try:
            session_uri(user, name)
        except UriError as error:
            raise invalid(field, f"is no session: {error.reason}", "Give an id or a URI") from error
        return name
    parsed = parse(canonical(field, name, user))
    if parsed.session is None or len(parsed.path) != 1:
        raise invalid(field, "is no URI of a session", "Give viking://user/sessions/{session}")
    return parsed.session


def field_value(value: Any, type: FieldType | None = None) -> common_pb2.FieldValue:
    """Returns the wire form of a value, using the type of its field if known."""
    if isinstance(value, bool):
        return common_pb2.FieldValue(bool_value=value)
    if type is FieldType.FLOAT32 or isinstance(value, float):
        return common_pb2.FieldValue(float32_value=value)
    if isinstance(value, int):
        return common_pb2.FieldValue(int64_value=value)
    return common_pb2.FieldValue(string_value=str(value))


def plain_value(value: common_pb2.FieldValue) -> Any:
    kind = value.WhichOneof("kind")
    return getattr(value, kind) if kind else None


def plain_values(fields: Mapping[str, common_pb2.FieldValue]) -> dict[str, Any]:
    return {name: plain_value(value) for name, value in fields.items()}


def field_change(patch: common_pb2.FieldPatch) -> FieldChange:
    """Returns the change that a patch makes to its field."""
    if patch.HasField("value"):
        return Set(plain_value(patch.value))
    if patch.HasField("rename"):
        return Rename(plain_value(patch.rename))
    blocks = patch.search_replace.blocks
    return Patch(tuple(SearchReplaceBlock(one.search, one.replace, one.start_line or None) for one in blocks))


def field_values(fields: str, type: MemoryType | None) -> dict[str, common_pb2.FieldValue]:
    """Returns the wire form of stored fields (JSON)."""
    types = {field.name: field.type for field in type.fields} if type else {}
    return {name: field_value(value, types.get(name)) for name, value in json.loads(fields).items()}


def extractor_info(stored: str) -> common_pb2.ExtractorInfo:
    """Returns the extractor from JSON; empty for an empty text."""
    return common_pb2.ExtractorInfo(**json.loads(stored)) if stored else common_pb2.ExtractorInfo()


def extractor_json(info: common_pb2.ExtractorInfo) -> dict[str, str]:
    return {"engine": info.engine, "model": info.model, "version": info.version}
