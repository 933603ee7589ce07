"""The file in which a directory stores the mark of the store that it belongs to, see
`runekeep_storage.identity.store_identity`."""

import os
from pathlib import Path

NAME = ".store-mark"
_SIZE = 512
"""Bytes of a record. It fits into one sector, so after a power cut the file holds the old or the new record, although
writers do not wait for the disk."""


def read_mark(directory: Path) -> str:
    """Returns the text that was written last; empty if there is none. Raises OSError."""
    try:
        return (directory / NAME).read_bytes().decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def write_mark(directory: Path, text: str) -> bool:
    """Returns True, or False if the directory does not exist and nothing was written. Raises OSError."""
    record = text.encode().ljust(_SIZE - 1) + b"\n"
    if len(record) != _SIZE:
        raise ValueError(f"a mark has at most {_SIZE - 1} bytes, got {len(record) - 1}")
    path = directory / NAME
    try:
        handle = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        if not directory.is_dir():
            return False
        _create(path, record)
        return True
    try:
        os.pwrite(handle, record, 0)
    finally:
        os.close(handle)
    return True


def _create(path: Path, record: bytes) -> None:
    """Creates the file. An empty file would be an unreadable mark, so the file is on disk before it gets its name."""
    draft = path.with_name(f"{NAME}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(record)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
