"""Requests that keep to the contract, as far out as it allows: made from its descriptors and rules, and from a seed."""

import random
import re
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from runekeep.buf.validate import validate_pb2
from tests.fuzz.names import Names
from tests.support.malformed import TEXTS

_DEEPEST = 5
_LONGEST = 3000
"""Characters that a text has where the contract allows more; once in a while it gets all that it may have."""
_ALPHABETS = ("a", "ab ", "é", "漢字", "🦀", "\u202e\u200d", "\0", "\n", "'\"\\", "0.-_A", "ﷺ", "e\u0301")
_PLAIN = "abcXYZ019._-"
_STRUCT = "google.protobuf."
_NAMING = (
    "session",
    "uri",
    "task_id",
    "bucket_id",
    "turn_id",
    "message_id",
    "archive_uri",
    "erasure_id",
    "query",
    "bucket",
)
_SET = {**dict.fromkeys(_NAMING, 0.93), "page_token": 0.08, "as_of": 0.15, "min_revision": 0.1, "version": 0.2}
"""How often a field is set; most others every second time. Without what names a thing little else is looked at."""
_MASKED = ("title", "memory_policy", "auto_commit", "name", "state", "short_desc")


class Sound:
    """Messages that pass validation, nearly all of them."""

    def __init__(self, rng: random.Random, names: Names) -> None:
        self._rng = rng
        self._names = names

    def message(self, descriptor: Descriptor, depth: int = 0) -> Any:
        made: Any = GetMessageClass(descriptor)()
        special = getattr(self, "_fill_" + descriptor.name, None) if descriptor.full_name.startswith(_STRUCT) else None
        if special is not None:
            special(made, depth)
            return made
        if descriptor.name == "Lease" and self._names.leases and self._rng.random() < 0.8:
            made.job_id, made.fencing_token = self._rng.choice(self._names.leases)
            return made
        chosen = {self._one_of(oneof) for oneof in descriptor.oneofs if len(oneof.fields) > 1}
        for field in descriptor.fields:
            oneof = field.containing_oneof
            if oneof is not None and len(oneof.fields) > 1:
                wanted = field.name in chosen
            else:
                usual = 0.5 if depth < 2 else 0.3
                wanted = self._is_required(field) or self._rng.random() < _SET.get(field.name, usual)
            if wanted:
                self._fill(made, field, depth)
        return made

    def _one_of(self, oneof: Any) -> str:
        required = oneof.GetOptions().Extensions[validate_pb2.oneof].required
        if not required and self._rng.random() < 0.3:
            return ""
        return str(self._rng.choice(oneof.fields).name)

    def _is_required(self, field: FieldDescriptor) -> bool:
        rules = _rules(field)
        return bool(
            rules.required or rules.repeated.min_items or rules.string.min_len or rules.enum.not_in or rules.int64.gt
            or rules.string.pattern.endswith("*$")
        )  # fmt: skip

    def _fill(self, made: Any, field: FieldDescriptor, depth: int) -> None:
        rules = _rules(field)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._fill_map(getattr(made, field.name), field.message_type, rules.map, depth)
        elif field.is_repeated:
            items = getattr(made, field.name)
            for _ in range(self._length(rules.repeated, field, depth)):
                if field.message_type is not None:
                    items.add().CopyFrom(self.message(field.message_type, depth + 1))
                else:
                    value = self._value(field, rules.repeated.items)
                    if not rules.repeated.unique or value not in items:
                        items.append(value)
        elif field.message_type is None:
            setattr(made, field.name, self._value(field, rules))
        elif depth < _DEEPEST or self._is_required(field):
            name = field.message_type.full_name
            if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
                getattr(made, field.name).CopyFrom(self._moment(field.message_type, rules))
            elif name == "google.protobuf.FieldMask":
                getattr(made, field.name).paths.extend(self._paths(made.DESCRIPTOR))
            else:
                getattr(made, field.name).CopyFrom(self.message(field.message_type, depth + 1))

    def _length(self, rules: Any, field: FieldDescriptor, depth: int) -> int:
        most = rules.max_items or 8
        if field.message_type is None and self._rng.random() < 0.03:
            return int(min(most, 200))
        return min(max(rules.min_items, self._rng.choice((0, 1, 1, 2, 3) if depth < 3 else (0, 1))), most)

    def _fill_map(self, entries: Any, entry: Descriptor, rules: Any, depth: int) -> None:
        value = entry.fields_by_name["value"]
        for _ in range(min(self._rng.choice((0, 1, 3)), rules.max_pairs or 3)):
            key = self._value(entry.fields_by_name["key"], rules.keys)
            if value.message_type is not None:
                entries[key].CopyFrom(self.message(value.message_type, depth + 1))
            else:
                entries[key] = self._value(value, rules.values)

    def _value(self, field: FieldDescriptor, rules: Any) -> Any:
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING:
                if field.type == FieldDescriptor.TYPE_BYTES:
                    return self._rng.randbytes(min(self._rng.choice((0, 1, 100, 1000)), rules.bytes.max_len or 1000))
                return self._text(field.name, rules.string)
            case FieldDescriptor.CPPTYPE_BOOL:
                return self._rng.random() < 0.5
            case FieldDescriptor.CPPTYPE_ENUM:
                assert field.enum_type is not None
                return self._rng.choice(
                    [one.number for one in field.enum_type.values if one.number not in rules.enum.not_in]
                )
            case FieldDescriptor.CPPTYPE_DOUBLE:
                return self._float(rules.double)
            case FieldDescriptor.CPPTYPE_FLOAT:
                return self._float(rules.float)
            case FieldDescriptor.CPPTYPE_INT32:
                return self._integer(rules.int32, 31, signed=True)
            case FieldDescriptor.CPPTYPE_UINT32:
                return self._integer(rules.uint32, 32, signed=False)
            case FieldDescriptor.CPPTYPE_UINT64:
                return self._integer(rules.uint64, 64, signed=False)
        return self._integer(rules.int64, 63, signed=True)

    def _integer(self, rules: Any, bits: int, *, signed: bool) -> int:
        low, high = -(2**bits) if signed else 0, 2**bits - 1
        if rules.HasField("gte"):
            low = rules.gte
        if rules.HasField("gt"):
            low = rules.gt + 1
        if rules.HasField("lte"):
            high = rules.lte
        if rules.HasField("lt"):
            high = rules.lt - 1
        wanted = self._rng.choice(
            (low, low + 1, high, high - 1, 0, 1, 2, 5, 20, self._rng.choice(self._names.numbers), 2**31, 2**53 + 1)
        )
        return int(min(max(wanted, low), high))

    def _float(self, rules: Any) -> float:
        low = rules.gte if rules.HasField("gte") else rules.gt if rules.HasField("gt") else -1e300
        high = rules.lte if rules.HasField("lte") else rules.lt if rules.HasField("lt") else 1e300
        return float(min(max(self._rng.choice((low, high, 0.0, -0.0, 0.5, 1.0, 1e-300, 1e30)), low), high))

    def _moment(self, descriptor: Descriptor, rules: Any) -> Any:
        made: Any = GetMessageClass(descriptor)()
        bounds = rules.timestamp if descriptor.name == "Timestamp" else rules.duration
        low, high = (0, 253402300798) if descriptor.name == "Timestamp" else (0, 315576000000)
        if bounds.HasField("gte"):
            low = bounds.gte.seconds
        if bounds.HasField("lte"):
            high = bounds.lte.seconds
        if bounds.HasField("lt"):
            high = bounds.lt.seconds - 1
        made.seconds = min(max(self._rng.choice((low, high, 1, 60, 1_700_000_000, 2_000_000_000)), low), high)
        if low < made.seconds < high and self._rng.random() < 0.3:
            made.nanos = self._rng.choice((1, 999, 1_000, 999_999_999))
        return made

    def _paths(self, descriptor: Descriptor) -> list[str]:
        fields = [field.name for field in descriptor.fields]
        inner = [one.name for field in descriptor.fields if field.message_type for one in field.message_type.fields]
        usual = [name for name in _MASKED if name in (*fields, *inner)]
        return [
            self._rng.choice(usual if usual and self._rng.random() < 0.85 else (*fields, *inner))
            for _ in range(self._rng.choice((1, 1, 2, 3)))
        ]

    def _text(self, field: str, rules: Any) -> str:
        if getattr(rules, "in"):
            return str(self._rng.choice(list(getattr(rules, "in"))))
        wanted: str | None = None
        if self._rng.random() < 0.75:
            wanted = self._names.of(field, self._rng)
        if wanted is None:
            wanted = self._rng.choice(TEXTS) if self._rng.random() < 0.5 else self._odd(rules)
        return wanted if _fits(wanted, rules) else self._odd(rules)

    def _odd(self, rules: Any) -> str:
        """As long as it may be, or as short, of characters that are seldom met."""
        most = rules.max_len or (rules.max_bytes // 4 if rules.max_bytes else _LONGEST)
        if self._rng.random() < 0.97:
            most = min(most, _LONGEST)
        length = self._rng.choice((rules.min_len, rules.min_len + 1, 3, 20, most))
        length = min(max(length, rules.min_len), most)
        if rules.pattern:
            return "".join(self._rng.choice("aZ9"[:2] if not at else _PLAIN) for at in range(max(length, 1)))
        alphabet = self._rng.choice(_ALPHABETS)
        return (alphabet * (length // len(alphabet) + 1))[:length]

    # google.protobuf.Value and what is in it

    def _fill_Value(self, made: Any, depth: int) -> None:  # named as the message is
        deep = depth < 7
        match self._rng.choice(("null", "number", "string", "bool") + (("list", "struct") if deep else ())):
            case "null":
                made.null_value = 0
            case "number":
                made.number_value = self._rng.choice((0.0, 1.0, -1.5, 1e300, 2.0**53))
            case "string":
                made.string_value = self._rng.choice(TEXTS)
            case "bool":
                made.bool_value = True
            case "list":
                made.list_value.SetInParent()
                for _ in range(self._rng.choice((0, 1, 2))):
                    self._fill_Value(made.list_value.values.add(), depth + 1)
            case "struct":
                made.struct_value.SetInParent()
                self._fill_Struct(made.struct_value, depth + 1)

    def _fill_Struct(self, made: Any, depth: int) -> None:  # named as the message is
        for _ in range(self._rng.choice((0, 1, 2))):
            self._fill_Value(made.fields[self._rng.choice(TEXTS)[:100]], depth + 1)


def _rules(field: FieldDescriptor) -> Any:
    return field.GetOptions().Extensions[validate_pb2.field]  # type: ignore[index]  # stubs know no extension of ours


def _fits(text: str, rules: Any) -> bool:
    return (
        len(text) >= rules.min_len
        and (not rules.max_len or len(text) <= rules.max_len)
        and (not rules.max_bytes or len(text.encode()) <= rules.max_bytes)
        and (not rules.pattern or re.search(rules.pattern, text) is not None)
    )
