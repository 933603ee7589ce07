"""The memory types a process knows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Self

from schemas.filenames import type_directory
from schemas.schema_file import SchemaError, SchemaFile
from schemas.types import MemoryType

_ENDINGS = (".yaml", ".yml")


class Registry:
    """Memory types by name, in the order of their names."""

    def __init__(self, types: Sequence[MemoryType]) -> None:
        self._types: Mapping[str, MemoryType] = {one.name: one for one in sorted(types, key=lambda one: one.name)}
        content = json.dumps([asdict(one) for one in self], sort_keys=True, ensure_ascii=True)
        self._digest = hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def load(cls, extra_dirs: Sequence[Path] = ()) -> Self:
        """Reads the types shipped with the package, then each directory, whose types add or replace.

        Raises SchemaError for a directory that is not there, a bad file, a type that is declared
        twice in one directory, and types whose files could collide.
        """
        files: dict[str, SchemaFile] = {}
        shipped = (
            (entry.name, entry.read_bytes())
            for entry in sorted(resources.files("schemas").iterdir(), key=lambda entry: entry.name)
            if entry.name.endswith(_ENDINGS)
        )
        files.update(_read(shipped, {}))
        built_in = {name: file.type for name, file in files.items()}
        for directory in extra_dirs:
            own = _read(_directory(directory), built_in)
            # In the order in which they were read, also where one takes another's place.
            files = {name: file for name, file in files.items() if name not in own} | own
        _refuse_collisions(list(files.values()))
        return cls([file.type for file in files.values()])

    @property
    def digest(self) -> str:
        """SHA-256 of what the types say, in hexadecimal; it does not depend on file names."""
        return self._digest

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(self._types)

    def get(self, name: str) -> MemoryType | None:
        """The type of that name, or None."""
        return self._types.get(name)

    def __getitem__(self, name: str) -> MemoryType:
        return self._types[name]

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[MemoryType]:
        return iter(self._types.values())

    def __len__(self) -> int:
        return len(self._types)

    def enabled(self) -> tuple[MemoryType, ...]:
        """The types that are extracted."""
        return tuple(one for one in self if one.enabled)

    def long_term(self) -> tuple[MemoryType, ...]:
        """The enabled types about people and their world, for the user and for peers."""
        return tuple(one for one in self.enabled() if not one.agent_only)

    def execution(self) -> tuple[MemoryType, ...]:
        """The enabled types about the agent's own doing, never for peers."""
        return tuple(one for one in self.enabled() if one.agent_only)


def _directory(directory: Path) -> Iterator[tuple[str, bytes]]:
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in _ENDINGS)
        for path in paths:
            yield str(path), path.read_bytes()
    except OSError as error:
        raise SchemaError(str(error.filename or directory), 0, error.strerror or "cannot be read") from error


def _read(contents: Iterator[tuple[str, bytes]], built_in: Mapping[str, MemoryType]) -> dict[str, SchemaFile]:
    files: dict[str, SchemaFile] = {}
    for name, content in contents:
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise SchemaError(name, line, "this is no UTF-8 text") from error
        file = SchemaFile(name, text, built_in)
        first = files.setdefault(file.type.name, file)
        if first is not file:
            raise file.error(("name",), f"{file.type.name} is declared in {first.file} as well")
    return files


def _refuse_collisions(files: Sequence[SchemaFile]) -> None:
    """One URI belongs to one type. Of two files that collide the one that was read later is to blame.

    A directory holds the files of one type whose names are made from fields, or any number of
    types with fixed, different names. Directories hold no dot and files end in one, so a file and
    a directory never meet.
    """
    holders: dict[str, list[SchemaFile]] = {}
    for file in files:
        earlier = holders.setdefault(type_directory(file.type, "u").casefold(), [])
        for other in earlier:
            keyed = next((one.type.name for one in (file, other) if one.type.key_fields), None)
            if keyed is not None:
                reason = (
                    f"{file.type.name} shares the directory of {other.type.name}, where {keyed} names files by fields"
                )
                raise file.error(("directory",), reason)
            if file.type.filename_template.casefold() == other.type.filename_template.casefold():
                reason = f"{file.type.name} and {other.type.name} write the same file"
                raise file.error(("filename_template",), reason)
        earlier.append(file)
