"""Keeps the vector of a fixed text in a file, so that another model behind the same name is noticed after a restart."""

import base64
import json
import os
import threading
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)


class KnownVector:
    """The vector, for vectors called `model`. It is kept until the end of the process if there is no file, or if the
    file cannot be read or written: the embedder must not depend on it. Several endpoints of one model share it."""

    def __init__(self, file: Path | None, model: str) -> None:
        self._file = file
        self._model = model
        self._vector = b""
        self._lock = threading.Lock()

    def keep(self, vector: bytes) -> bytes:
        """Returns the kept vector. Keeps this one if there is none of its length: another length means a damaged file,
        because the name of the vectors includes their dimension."""
        with self._lock:
            if len(self._read()) != len(vector):
                self._write(vector)
            return self._vector

    def is_kept(self, dimension: int) -> bool:
        """Returns whether there is one of that many numbers."""
        with self._lock:
            return len(self._read()) == 4 * dimension

    def _read(self) -> bytes:
        """Returns the vector; empty if none of this model is kept."""
        if self._vector or self._file is None or not self._file.exists():
            return self._vector
        try:
            kept = json.loads(self._file.read_text())
            if kept["model"] == self._model:
                self._vector = base64.b64decode(kept["vector"], validate=True)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("known_vector_not_read", file=str(self._file), error=type(error).__name__)
        return self._vector

    def _write(self, vector: bytes) -> None:
        self._vector = vector
        if self._file is None:
            return
        kept = {"model": self._model, "vector": base64.b64encode(vector).decode()}
        draft = self._file.with_name(f"{self._file.name}.draft")
        try:
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(kept))
            os.replace(draft, self._file)
        except OSError as error:
            _log.warning("known_vector_not_written", file=str(self._file), error=type(error).__name__)
