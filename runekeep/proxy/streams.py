"""Reads the text of an answer while it passes by, whole or as a stream of events."""

from runekeep.proxy.dialects import Dialect, json_object

MAX_ANSWER_BYTES = 4_000_000
"""Of an answer that is kept; a longer one is not appended."""


class AnswerReader:
    """Collects the bytes of one answer. `streamed`: it is a stream of server-sent events."""

    def __init__(self, dialect: Dialect, streamed: bool) -> None:
        self._dialect = dialect
        self._streamed = streamed
        self._data = bytearray()
        self._too_long = False

    def take(self, chunk: bytes) -> None:
        if len(self._data) + len(chunk) > MAX_ANSWER_BYTES:
            self._too_long = True
        else:
            self._data += chunk

    def text(self) -> str:
        """Returns the text; empty if the answer is incomplete, too long, or has none."""
        if self._too_long:
            return ""
        data = self._data.decode(errors="replace")
        if not self._streamed:
            return self._dialect.answer(json_object(data) or {}).strip()
        lines = [line[len("data:") :].strip() for line in data.split("\n") if line.startswith("data:")]
        if not any(self._dialect.ends(line) for line in lines):
            return ""
        return "".join(self._dialect.piece(json_object(line) or {}) for line in lines).strip()
