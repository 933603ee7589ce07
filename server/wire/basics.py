"""Times, names, field values and their changes."""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from schemas.merge import FieldChange, Patch, Set
from schemas.patch import SearchReplaceBlock
from schemas.types import FieldType, MemoryType
from schemas.uris import UriError, canonicalize, parse, session_uri
from server.errors import invalid


def timestamp(microseconds: int) -> Timestamp | None:
    """None for 0, which stands for never."""
    if not microseconds:
        return None
    stamp = Timestamp()
    stamp.FromMicroseconds(microseconds)
    return stamp


def microseconds(stamp: Timestamp) -> int:
    return int(stamp.ToMicroseconds())


def canonical(field: str, uri: str, user: str) -> str:
    """The canonical form of a URI of the caller's. A space of somebody else is INVALID_ARGUMENT like any wrong URI."""
    try:
        return canonicalize(uri, user)
    except UriError as error:
        raise invalid(field, f"is no URI of yours: {error.reason}", "See the names in common.proto") from error


def session_id(field: str, name: str, user: str) -> str:
    """The id in a field that takes a session's URI or its bare id."""
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
    """The wire form of a value, by the type of its field where that is known."""
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
    """What a patch does to its field."""
    if patch.WhichOneof("change") == "value":
        return Set(plain_value(patch.value))
    blocks = patch.search_replace.blocks
    return Patch(tuple(SearchReplaceBlock(one.search, one.replace, one.start_line or None) for one in blocks))


def field_values(fields: str, type: MemoryType | None) -> dict[str, common_pb2.FieldValue]:
    """Wire form of stored fields (JSON)."""
    types = {field.name: field.type for field in type.fields} if type else {}
    return {name: field_value(value, types.get(name)) for name, value in json.loads(fields).items()}


def extractor_info(stored: str) -> common_pb2.ExtractorInfo:
    """From JSON; empty for empty text."""
    return common_pb2.ExtractorInfo(**json.loads(stored)) if stored else common_pb2.ExtractorInfo()


def extractor_json(info: common_pb2.ExtractorInfo) -> dict[str, str]:
    return {"engine": info.engine, "model": info.model, "version": info.version}
