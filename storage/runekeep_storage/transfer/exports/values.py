"""The allowed values in a line of an export, whoever wrote the line: bounds, ids, URIs, JSON."""

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_schemas.documents.uris import IdKind, UriError, is_safe_id, parse
from runekeep_schemas.policy import MemoryPolicy
from runekeep_storage.transfer.exports.layout import MAX_REVISIONS

_EARLIEST: Final = -62_135_596_800_000_000
"""First microsecond of the year 1."""
_LATEST: Final = 253_402_300_799_999_999
"""Last microsecond of the year 9999."""


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """Returns a validator that keeps values that pass `check`. It refuses a value on ValueError, or on what invalid
    JSON makes `check` raise."""

    def passes(value: Any) -> Any:
        try:
            check(value)
        except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError("is not of its form") from error
        return value

    return AfterValidator(passes)


def _is_json(value: Any) -> None:
    """Raises unless every JSON reader can read the value: finite numbers that a double holds, and valid text."""
    match value:
        case str():
            value.encode()
        case bool() | None:
            pass
        case int() | float():
            if not math.isfinite(float(value)):
                raise ValueError("is no finite number")
        case list():
            for one in value:
                _is_json(one)
        case dict():
            for name, one in value.items():
                name.encode()
                _is_json(one)
        case _:
            raise ValueError("is no JSON")


def safe(kind: IdKind) -> AfterValidator:
    """Accepts an id of that kind, or an empty text."""

    def check(value: str) -> None:
        if value and not is_safe_id(kind, value):
            raise ValueError("is no safe id")

    return checked(check)


def _is_uri(value: str) -> None:
    try:
        parse(value)
    except UriError as error:
        raise ValueError("is no URI") from error


def _is_policy(value: dict[str, Any]) -> None:
    MemoryPolicy.from_json(value)


def _is_auto_commit(value: dict[str, Any] | None) -> None:
    AutoCommit.from_json(json.dumps(value) if value is not None else "")


Whole = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[int, Field(ge=1, le=2**53)]
"""From 1."""
Small = Annotated[int, Field(ge=0, lt=2**31)]
Index = Annotated[int, Field(ge=0, lt=10**9)]
"""Index of an archive; 0: none."""
Revision = Annotated[int, Field(ge=0, le=MAX_REVISIONS)]
Time = Annotated[int, Field(ge=0, le=_LATEST)]
Moment = Annotated[int, Field(ge=_EARLIEST, le=_LATEST)]
"""Microseconds like `Time`, for the years 1 to 9999: the range of a timestamp in the contract."""
Flag = Annotated[int, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=64 * 1024 * 1024)]
Short = Annotated[str, Field(max_length=8192)]
SessionId = Annotated[str, Field(min_length=1), safe(IdKind.SESSION)]
TurnId = Annotated[str, Field(min_length=1), safe(IdKind.TURN)]
MaybeTurnId = Annotated[str, safe(IdKind.TURN)]
PeerId = Annotated[str, Field(min_length=1), safe(IdKind.PEER)]
TaskId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
MessageId = TaskId
TypeName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,127}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Json = Annotated[Any, checked(_is_json)]
JsonObject = Annotated[dict[str, Any], checked(_is_json)]
Uri = Annotated[str, checked(_is_uri)]
Policy = Annotated[JsonObject, checked(_is_policy)]
AutoCommitRules = Annotated[JsonObject | None, checked(_is_auto_commit)]


class Strict(BaseModel):
    """An object with exactly these members; values are not converted."""

    # Built when the first line is read: most servers never read one.
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Lenient(BaseModel):
    """Like Strict, but unknown members are ignored; another check makes sure that there are none."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
