"""Writes the reference of the contract under docs/reference/, or checks that it is fresh.

python proto/reference.py            write
python proto/reference.py --check    exit 1 and name the pages that differ
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from runekeep.buf.validate import validate_pb2

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference"
PREFIX = ".runekeep.v1."

# Numbers of fields in descriptor.proto, by which comments are found.
SERVICE, MESSAGE, ENUM, METHOD, FIELD, VALUE, NESTED = 6, 4, 5, 2, 2, 2, 3

COUNTED = {
    "min_len": "at least {} characters",
    "max_len": "at most {} characters",
    "max_bytes": "at most {} bytes",
    "min_items": "at least {} items",
    "max_items": "at most {} items",
    "min_pairs": "at least {} entries",
    "max_pairs": "at most {} entries",
    "gt": "above {}",
    "gte": "at least {}",
    "lt": "below {}",
    "lte": "at most {}",
    "pattern": "matches `{}`",
}
FLAGS = {"required": "required", "unique": "no two alike", "finite": "a finite number"}
INNER = {"items": "each item", "keys": "each key", "values": "each value"}


class Page:
    """One file of the contract as Markdown."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto, page_of: dict[str, str]) -> None:
        self._file = file
        self._page_of = page_of
        self._comments = {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}
        # What stands by itself, above the first declaration: conventions of all of it.
        self._conventions = [
            cleandoc(comment) for place in file.source_code_info.location for comment in place.leading_detached_comments
        ]

    def text(self) -> str:
        name = Path(self._file.name).name
        lines = [f"# {name}", "", f"<!-- Printed by `make proto` from proto/{self._file.name}. -->"]
        for comment in self._conventions:
            lines += ["", comment]
        for number, service in enumerate(self._file.service):
            lines += ["", f"## {service.name}", "", self._prose(SERVICE, number), ""]
            lines += ["| call | takes | gives | what it does |", "|---|---|---|---|"]
            for place, method in enumerate(service.method):
                takes = ("a stream of " if method.client_streaming else "") + self._link(method.input_type)
                gives = ("a stream of " if method.server_streaming else "") + self._link(method.output_type)
                what = self._prose(SERVICE, number, METHOD, place)
                lines.append(f"| `{method.name}` | {takes} | {gives} | {_cell(what)} |")
        for number, message in enumerate(self._file.message_type):
            lines += self._message(message, "", MESSAGE, number)
        for number, enum in enumerate(self._file.enum_type):
            lines += self._enum(enum, "", ENUM, number)
        return "\n".join(lines) + "\n"

    def _message(self, message: descriptor_pb2.DescriptorProto, within: str, *path: int) -> list[str]:
        if message.options.map_entry:
            return []
        name = within + message.name
        lines = ["", f"## {name}", "", self._prose(*path)]
        for oneof in message.oneof_decl:
            if oneof.options.Extensions[validate_pb2.oneof].required:
                lines += ["", f"Exactly one of `{oneof.name}` is required."]
        if message.field:
            lines += ["", "| field | type | meaning | rules |", "|---|---|---|---|"]
        for number, field in enumerate(message.field):
            meaning = _cell(self._prose(*path, FIELD, number))
            if field.HasField("oneof_index") and not field.proto3_optional:
                meaning = f"One of `{message.oneof_decl[field.oneof_index].name}`. {meaning}"
            rules = ", ".join(_rules(field.options.Extensions[validate_pb2.field]))
            lines.append(
                f"| `{field.name}` | {self._type(field, message)} | {meaning} | {rules.replace('|', '&#124;')} |"
            )
        for number, nested in enumerate(message.nested_type):
            lines += self._message(nested, f"{name}.", *path, NESTED, number)
        for number, enum in enumerate(message.enum_type):
            lines += self._enum(enum, f"{name}.", *path, 4, number)
        return lines

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto, within: str, *path: int) -> list[str]:
        lines = [
            "",
            f"## {within}{enum.name}",
            "",
            self._prose(*path),
            "",
            "| value | number | meaning |",
            "|---|---|---|",
        ]
        for number, value in enumerate(enum.value):
            lines.append(f"| `{value.name}` | {value.number} | {_cell(self._prose(*path, VALUE, number))} |")
        return lines

    def _type(self, field: Field, message: descriptor_pb2.DescriptorProto) -> str:
        entry = next(
            (one for one in message.nested_type if field.type_name.endswith(f".{message.name}.{one.name}")), None
        )
        if entry is not None and entry.options.map_entry:
            key, value = entry.field
            return f"map of {self._type(key, entry)} to {self._type(value, entry)}"
        named = field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM)
        word = self._link(field.type_name) if named else Field.Type.Name(field.type).removeprefix("TYPE_").lower()
        if field.label == Field.LABEL_REPEATED:
            return f"list of {word}"
        return f"{word}, optional" if field.proto3_optional else word

    def _link(self, type_name: str) -> str:
        name = type_name.removeprefix(PREFIX)
        if type_name not in self._page_of:
            return f"`{type_name.removeprefix('.')}`"
        return f"[{name}]({self._page_of[type_name]}#{name.lower().replace('.', '')})"

    def _prose(self, *path: int) -> str:
        return self._comments.get(path, "")


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "&#124;")


def _rules(rules: Any) -> Iterator[str]:
    """What a message of protovalidate's rules says. KeyError for a rule that this page has no words for."""
    for descriptor, value in rules.ListFields():
        name = descriptor.name
        if name in FLAGS:
            yield FLAGS[name]
        elif name in INNER:
            yield f"{INNER[name]} {', '.join(_rules(value))}"
        elif name == "in":
            yield "one of " + ", ".join(f"`{one}`" if one != "" else "empty" for one in value)
        elif name == "not_in" and list(value) == [0]:
            yield "required"
        elif name == "defined_only":
            continue
        elif name in COUNTED:
            yield re.sub(r"\b1 (character|byte|item)s\b", r"1 \1", COUNTED[name].format(_number(value)))
        elif descriptor.message_type is not None and descriptor.containing_type.name == "FieldRules":
            yield from _rules(value)
        elif name == "ignore":
            continue
        else:
            raise KeyError(f"{descriptor.full_name}: give proto/reference.py words for this rule")


def _number(value: Any) -> str:
    # Times and durations, in seconds.
    return str(value.seconds) + " s" if hasattr(value, "seconds") else str(value)


def _names(messages: Any, within: str) -> Iterator[str]:
    for one in messages:
        yield within + one.name
        yield from _names(getattr(one, "nested_type", ()), f"{within}{one.name}.")
        yield from (f"{within}{one.name}.{enum.name}" for enum in getattr(one, "enum_type", ()))


def pages() -> dict[str, str]:
    """Markdown by file name."""
    built = subprocess.run(["buf", "build", "-o", "-"], cwd=ROOT, check=True, capture_output=True).stdout
    files = [one for one in descriptor_pb2.FileDescriptorSet.FromString(built).file if one.package == "runekeep.v1"]
    page_of = {
        PREFIX + name: f"{Path(file.name).stem}.md"
        for file in files
        for name in (*_names(file.message_type, ""), *_names(file.enum_type, ""))
    }
    return {f"{Path(file.name).stem}.md": Page(file, page_of).text() for file in files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made = pages()
    TARGET.mkdir(parents=True, exist_ok=True)
    present = {page.name for page in TARGET.glob("*.md")}
    stale = sorted(present - made.keys())
    for name, text in made.items():
        path = TARGET / name
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    for name in stale:
        if check:
            print(f"not fresh: docs/reference/{name}; run `make proto`", file=sys.stderr)
        else:
            (TARGET / name).unlink()
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
