"""Requests as nobody should send them, made from the contract's own descriptors and a seed."""

import math
import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

INTEGERS = (0, 1, -1, 2, 7, 99, 200, 201, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.5, -1.0, 1e38, math.inf, -math.inf, math.nan)
TEXTS = (
    "", " ", "a", "default", "..", ".", "../../etc/passwd", "a/b", "\0", "a\0b", "\u2028", "\ufeff", "\u202e",
    "🦀" * 40,
    "x" * 300, "y" * 5000, "%00", "'; DROP TABLE sessions; --", "{}", '{"a": 1}', "null", "NaN", "$1", "é" * 128,
    "viking://", "viking://user", "viking://user/", "viking://user/memories", "viking://user/memories/profile.md",
    "viking://user/memories/../sessions", "viking://user/memories//", "viking://agent/x/memories", "viking://session/s",
    "viking://user/sessions", "viking://user/sessions/s/history/archive_001", "viking://user/sessions/s/history/archive_0",
    "viking://user/sessions/s/history/archive_999999999/.done", "viking://user/peers/a b/memories", "http://a.test",
    "viking://user/sessions/s/tools/x/tool.json", "viking://user/.abstract.md", "viking://user/memories/.overview.md",
    "WyJhIiwgMV0", "W10", "////", "events", "preferences", "content",
)  # fmt: skip


class Malformed:
    """Messages of any type. `likely` are texts that name things which are there: with them requests come further."""

    def __init__(self, seed: str, likely: tuple[str, ...]) -> None:
        self._random = random.Random(seed)
        self._likely = likely

    def message(self, descriptor: Descriptor, depth: int = 0) -> Message:
        made = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if self._random.random() < (0.75 if depth < 4 else 0.3):
                self._fill(made, field, depth)
        return made

    def damaged(self, sound: Message) -> Message:
        """A sound message with one place of it filled anew."""
        made = type(sound)()
        made.CopyFrom(sound)
        place = made
        while True:
            field: Any = self._random.choice(list(place.DESCRIPTOR.fields))
            inside = self._inside(place, field)
            if inside is None or self._random.random() < 0.2:
                place.ClearField(field.name)
                self._fill(place, field, 3)
                return made
            place = inside

    def _inside(self, place: Message, field: FieldDescriptor) -> Message | None:
        """A message that is set in the field, to damage instead of the field as a whole."""
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            return None
        if field.is_repeated:
            found = list(getattr(place, field.name))
            return self._random.choice(found) if found else None
        return getattr(place, field.name) if place.HasField(field.name) else None

    def _fill(self, made: Message, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and depth > 6:
            return
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._fill_map(getattr(made, field.name), field.message_type, depth)
        elif field.is_repeated:
            for _ in range(self._random.choice((0, 1, 1, 2, 3))):
                if field.message_type is not None:
                    getattr(made, field.name).add().CopyFrom(self.message(field.message_type, depth + 1))
                else:
                    getattr(made, field.name).append(self._value(field))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(self.message(field.message_type, depth + 1))
        else:
            setattr(made, field.name, self._value(field))

    def _fill_map(self, entries: Any, entry: Descriptor, depth: int) -> None:
        value = entry.fields_by_name["value"]
        for _ in range(self._random.choice((0, 1, 3))):
            key = self._value(entry.fields_by_name["key"])
            if value.message_type is not None:
                entries[key].CopyFrom(self.message(value.message_type, depth + 1))
            else:
                entries[key] = self._value(value)

    def _value(self, field: FieldDescriptor) -> Any:
        choose = self._random.choice
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING:
                if field.type == FieldDescriptor.TYPE_BYTES:
                    return choose((b"", b"\xff\x00", b"x" * 1000))
                return choose(self._likely) if self._random.random() < 0.5 else choose(TEXTS)
            case FieldDescriptor.CPPTYPE_BOOL:
                return choose((True, False))
            case FieldDescriptor.CPPTYPE_ENUM:
                assert field.enum_type is not None
                known = [value.number for value in field.enum_type.values]
                return choose((*known, *known, 99, -1, 2**31 - 1))
            case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
                return choose(FLOATS)
            case FieldDescriptor.CPPTYPE_INT32:
                return choose([number for number in INTEGERS if -(2**31) <= number < 2**31])
            case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
                return choose([number for number in INTEGERS if 0 <= number < 2**31])
        return choose(INTEGERS)
