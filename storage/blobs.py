"""Large values beside the relational store: content-addressed within a space, never across spaces."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

from storage.database import Space
from storage.errors import NotFound, StoreUnavailable


class Blobs(Protocol):
    """Where blobs are kept. A blob is written before the row that names it."""

    def put(self, space: Space, data: bytes) -> str:
        """Durable when it returns; gives the name, which is the same for the same data in the same space."""
        ...

    def get(self, space: Space, name: str) -> bytes:
        """Raises NotFound."""
        ...


class FolderBlobs:
    """Files under one folder, a folder a space."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, space: Space, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self._path(space, name)
        if path.exists():
            return name
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                try:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(file.name, path)
                except BaseException:
                    # A full disk must not fill further with halves that nobody names.
                    os.unlink(file.name)
                    raise
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StoreUnavailable(f"cannot write a blob: {error.strerror}") from error
        return name

    def get(self, space: Space, name: str) -> bytes:
        try:
            return self._path(space, name).read_bytes()
        except FileNotFoundError:
            raise NotFound("blob", name) from None

    def _path(self, space: Space, name: str) -> Path:
        return self._root / space.account / space.user / name[:2] / name
