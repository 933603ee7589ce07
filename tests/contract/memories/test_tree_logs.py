"""Text search in logs of messages: without those that are erased, and on through commits between its pages."""

from pathlib import Path

import pytest

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.memories.tree import grep
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Tx
from tests.support.storage.databases import ANN, commit, talk
from tests.support.storage.search import Search
from tests.support.storage.trees import Tree

pytestmark = pytest.mark.postgres_long

ROOT = "viking://user/ann"

LIVE = f"{ROOT}/sessions/s/messages.jsonl"
ARCHIVED = f"{ROOT}/sessions/s/history/archive_001/messages.jsonl"


@pytest.fixture
def tree(search: Search, tmp_path: Path) -> Tree:
    return Tree(search.database, search.registry, search.relay, FolderBlobs(tmp_path / "blobs"), ANN)


async def _erase(tx: Tx, session: str, sequences: tuple[int, ...]) -> None:
    for sequence in sequences:
        await tx.execute(
            "UPDATE messages SET erased = 1, parts = '[]' WHERE account = $1 AND user_id = $2 AND session_id = $3"
            " AND sequence = $4",
            ANN.account,
            ANN.user,
            session,
            sequence,
        )


async def _check(tree: Tree, uri: str, words: int, *, context: int, limit: int) -> None:
    lines = (await tree.read(uri)).split("\n")
    assert len(lines) == words
    found = await tree.grep("word", uri=uri, context_lines=context, limit=limit, show_hidden=False)
    assert [(one.line, one.text) for one in found] == list(enumerate(lines))
    for one in found:
        assert list(one.before) == lines[max(one.line - context, 0) : one.line]
        assert list(one.after) == lines[one.line + 1 : one.line + 1 + context]


ERASED = ((1,), (1, 2, 3, 4), (5,), (4, 5, 6, 7, 8), (3,), (11, 12), (1, 6, 12), (9, 12))
"""Messages at both ends of slices of four, whole slices, and across them."""


@pytest.mark.parametrize("log", [LIVE, ARCHIVED])
async def test_erased_messages_are_no_lines(tree: Tree, monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    monkeypatch.setattr(grep, "SLICE_LINES", 4)
    for number, erased in enumerate(ERASED):
        session = f"s{number}"
        await talk(tree.database, ANN, session, *(f"word {number}" for number in range(12)))
        if log == ARCHIVED:
            await commit(tree.database, ANN, session, f"task-{number}")
        await tree.database.write_global(_erase, session, erased)
        for context, limit in ((0, 100), (2, 100), (0, 1), (2, 3)):
            uri = log.replace("/s/", f"/{session}/")
            await _check(tree, uri, 12 - len(erased), context=context, limit=limit)


async def test_a_log_of_which_all_is_erased_holds_nothing_and_hides_nothing(tree: Tree) -> None:
    await talk(tree.database, ANN, "s", "word", "word")
    await talk(tree.database, ANN, "t", "word")
    await tree.database.write_global(_erase, "s", (1, 2))
    found = await tree.grep("word")
    assert [one.uri for one in found] == [f"{ROOT}/sessions/t/messages.jsonl"]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("keep_recent", "limit"), [(0, 5), (6, 5), (6, 1), (18, 5)])
async def test_what_is_archived_between_pages_is_found_once(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, named: bool, keep_recent: int, limit: int
) -> None:
    monkeypatch.setattr(grep, "SLICE_LINES", 3)
    monkeypatch.setattr(grep, "MAX_DOCUMENTS", 3)
    said = await talk(tree.database, ANN, "s", *(f"word {number}" for number in range(20)))
    pages = tree.pages("word", limit=limit, show_hidden=False, uri=LIVE if named else "", context_lines=1)
    found: list[pb.GrepMatch] = list((await anext(pages)).matches)
    await commit(tree.database, ANN, "s", "one", keep_recent=keep_recent)
    found += (await anext(pages)).matches
    await talk(tree.database, ANN, "s", "word 20")
    # What was archived already, and what is now; an erasure moves lines but not messages.
    await commit(tree.database, ANN, "s", "two")
    await tree.database.write_global(_erase, "s", (1,))
    found += [match async for page in pages for match in page.matches]
    # The last one came when its log had been begun.
    assert len(found) in (20, 21)
    for number, one in enumerate(found[: len(said)]):
        assert f'"word {number}"' in one.text
    for one in found[2 * limit :]:
        lines = (await tree.read(one.uri)).split("\n")
        assert lines[one.line] == one.text
        assert list(one.before) == lines[max(one.line - 1, 0) : one.line]
