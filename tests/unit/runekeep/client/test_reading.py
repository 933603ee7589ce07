"""A document that is read in several calls is one document, or none."""

from typing import Any

import pytest

from runekeep.client.connection.errors import AbortedError
from runekeep.client.memories.documents import UserDocuments
from runekeep.v1 import memory_service_pb2 as wire


class _Server:
    """Answers with two lines, or five characters, at a time; the document is another one after each call that
    `changes` says."""

    def __init__(self, text: str, changes: dict[int, str]) -> None:
        self.text, self.changes, self.calls = text, changes, 0
        self.stubs = self
        self.memories = self
        self.ReadDocument = self

    async def call(self, method: object, request: wire.ReadDocumentRequest) -> Any:
        lines = self.text.split("\n")
        answer = wire.ReadDocumentResponse(total_lines=len(lines), total_characters=len(self.text))
        if request.HasField("characters"):
            end = request.characters.start + 5
            answer.text = self.text[request.characters.start : end]
            answer.next_offset = end if end < len(self.text) else 0
        else:
            end = request.offset + 2
            answer.text = "\n".join(lines[request.offset : end])
            answer.next_offset = end if end < len(lines) else 0
        self.calls += 1
        self.text = self.changes.get(self.calls, self.text)
        return answer


def _documents(server: _Server) -> UserDocuments:
    documents = UserDocuments()
    documents._connection = server  # type: ignore[assignment]
    return documents


OLD, NEW = "one\ntwo\nthree\nfour\nfive", "six\nseven"


@pytest.mark.parametrize("part", [{}, {"characters": (0, -1)}])
async def test_a_document_that_changed_between_calls_is_read_anew(part: dict[str, Any]) -> None:
    assert await _documents(_Server(OLD, {})).read("u", **part) == OLD
    assert await _documents(_Server(OLD, {1: NEW})).read("u", **part) == NEW
    assert await _documents(_Server(OLD, {2: NEW})).read("u", **part) == NEW


async def test_one_that_changes_each_time_is_not_read_by_halves() -> None:
    server = _Server(OLD, {call: OLD + "\nmore" * call for call in range(1, 20)})
    with pytest.raises(AbortedError):
        await _documents(server).read("u")
    assert server.calls == 6
