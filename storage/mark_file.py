"""The file in which a directory keeps the mark of the store that it belongs to, see `storage.store_identity`."""

import os
from pathlib import Path

NAME = ".store-mark"
_SIZE = 512
"""Bytes of a record: within one sector, so that after a power cut the file holds the old record or the new one although
nobody waits for the disk."""


def read_mark(directory: Path) -> str:
    """The text that was written last; empty when there is none. Raises OSError."""
    try:
        return (directory / NAME).read_bytes().decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def write_mark(directory: Path, text: str) -> None:
    """Does nothing while there is no such directory. Raises OSError."""
    record = text.encode().ljust(_SIZE - 1) + b"\n"
    if len(record) != _SIZE:
        raise ValueError(f"a mark has at most {_SIZE - 1} bytes, got {len(record) - 1}")
    path = directory / NAME
    try:
        handle = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        if directory.is_dir():
            _create(path, record)
        return
    try:
        os.pwrite(handle, record, 0)
    finally:
        os.close(handle)


def _create(path: Path, record: bytes) -> None:
    """A file without contents would be a mark that cannot be read, so this one is on disk before it has its name."""
    draft = path.with_name(f"{NAME}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(record)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
