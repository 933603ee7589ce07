"""The registry of the memory types that a process knows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Self

from runekeep_schemas.documents.filenames import type_directory
from runekeep_schemas.memory_types.model import MemoryType
from runekeep_schemas.type_files.schema_file import SchemaError, SchemaFile

_ENDINGS = (".yaml", ".yml")


class Registry:
    """Memory types by name, in the order of their names."""

    def __init__(self, types: Sequence[MemoryType]) -> None:
        self._types: Mapping[str, MemoryType] = {one.name: one for one in sorted(types, key=lambda one: one.name)}
        content = json.dumps([asdict(one) for one in self], sort_keys=True, ensure_ascii=True)
        self._digest = hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def load(cls, extra_dirs: Sequence[Path] = ()) -> Self:
        """Reads the types shipped with the package, then each directory, whose types are added or replace earlier ones.

        Raises SchemaError for a missing directory, an invalid file, a type that is declared twice in one directory, and
        types whose files could collide.
        """
        files: dict[str, SchemaFile] = {}
        shipped = (
            (entry.name, entry.read_bytes())
            for entry in sorted(resources.files("runekeep_schemas.builtin").iterdir(), key=lambda entry: entry.name)
            if entry.name.endswith(_ENDINGS)
        )
        files.update(_read(shipped, {}))
        built_in = {name: file.type for name, file in files.items()}
        for directory in extra_dirs:
            own = _read(_directory(directory), built_in)
            # In reading order, even if one type replaces another.
            files = {name: file for name, file in files.items() if name not in own} | own
        _refuse_collisions(list(files.values()))
        return cls([file.type for file in files.values()])

    @property
    def digest(self) -> str:
        """SHA-256 of the types' declarations, in hexadecimal; independent of file names."""
        return self._digest

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(self._types)

    def get(self, name: str) -> MemoryType | None:
        """Returns the type of that name, or None."""
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
        """Returns the types that are extracted."""
        return tuple(one for one in self if one.enabled)

    def long_term(self) -> tuple[MemoryType, ...]:
        """Returns the enabled types about people and their world, for the user and for peers."""
        return tuple(one for one in self.enabled() if not one.agent_only)

    def execution(self) -> tuple[MemoryType, ...]:
        """Returns the enabled types about the agent's own work, never for peers."""
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
    """Raises SchemaError if one URI could belong to two types. Of two colliding files, the one read later is reported.

    A directory holds either the files of one type whose names are made from fields, or any number of types with fixed,
    different names. Directory names contain no dot and file names end in an extension, so a file and a directory never
    collide.
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
