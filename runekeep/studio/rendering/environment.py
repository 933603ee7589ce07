"""The templates and their filters. Everything that is put into them is escaped."""

import json
from collections.abc import Iterable
from datetime import UTC
from typing import Any
from urllib.parse import quote

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from runekeep.studio.rendering.attribution import message_of_line
from runekeep.studio.rendering.differences import side_by_side
from runekeep.studio.rendering.links import link
from runekeep.studio.rendering.markdown import markdown

MAX_VALUE_CHARACTERS = 4000
MAX_LINE_CHARACTERS = 80


def environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("runekeep.studio"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(link=link, label=label, side_by_side=side_by_side, message_of_line=message_of_line)
    templates.filters.update(
        when=when,
        markdown=markdown,
        words=words,
        seconds=seconds,
        bytes=byte_count,
        count=count,
        plain=plain,
        value=field_value,
        session_id=session_id,
        commit_path=commit_path,
        short_uri=short_uri,
        uri=lambda text: quote(text, safe=""),
        sum_tokens=sum_tokens,
        has_cost=has_cost,
    )
    return templates


def when(moment: Timestamp) -> Markup:
    """A time, which the browser turns into its own zone; `never` for one that is not set."""
    if not moment.seconds:
        return Markup("<span class='faint'>–</span>")
    time = moment.ToDatetime(UTC)
    return Markup("<time datetime='{}'>{}</time>").format(time.isoformat(), time.strftime("%Y-%m-%d %H:%M UTC"))


def label(message: Message, field: str) -> str:
    """The value of an enum field in words: `TASK_STATE_COMPLETED` becomes `completed`."""
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    assert kind is not None, f"{field} of {message.DESCRIPTOR.name} is no enum"
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    known = kind.values_by_number.get(getattr(message, field))
    return words(known.name.removeprefix(prefix)) if known is not None else "unknown"


def words(name: str) -> str:
    """A name of the contract in words."""
    return name.replace("_", " ").lower()


def seconds(duration: Duration) -> str:
    total = duration.seconds + duration.nanos / 1e9
    if total < 1:
        return f"{total * 1000:.0f} ms"
    if total < 120:
        return f"{total:.1f} s"
    return f"{total / 60:.0f} min" if total < 7200 else f"{total / 3600:.0f} h"


def byte_count(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def count(number: int) -> str:
    return f"{number:,}"


def plain(message: Message) -> str:
    """A message of the contract as JSON, for structured values such as the input of a tool."""
    value = _whole_numbers(MessageToDict(message))
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_LINE_CHARACTERS:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[:MAX_VALUE_CHARACTERS] + " ..."


def _whole_numbers(value: Any) -> Any:
    """Numbers of a Struct are floating: 3000.0 is shown as 3000."""
    if isinstance(value, dict):
        return {name: _whole_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def field_value(value: Any) -> str:
    """The text of a FieldValue, which the server reads as the same value."""
    # JSON has the shortest digits of a 32-bit number.
    (inner,) = MessageToDict(value).values() or ("",)
    return str(inner).lower() if isinstance(inner, bool) else str(inner)


def session_id(uri: str) -> str:
    """The last segment of a session's URI."""
    return uri.rstrip("/").rpartition("/")[2]


def commit_path(archive_uri: str) -> str:
    """The page of the commit that made an archive."""
    session, _, index = archive_uri.rpartition("/history/archive_")
    return f"/sessions/{session_id(session)}/commits/{int(index)}"


def short_uri(uri: str) -> Markup:
    """A URI below the user's root, which may break after each slash."""
    path = uri.removeprefix("viking://user/").partition("/")[2] or uri
    return Markup("/<wbr>").join(escape(segment) for segment in path.split("/"))


def sum_tokens(usage: Iterable[Any]) -> int:
    return sum(
        used.input_tokens + used.cache_write_tokens + used.cache_read_tokens + used.output_tokens for used in usage
    )


def has_cost(usage: Any) -> bool:
    """Whether the price of the model is known."""
    return bool(usage.HasField("cost_usd"))
