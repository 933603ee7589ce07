"""The texts that agents are shown, against those that were written by hand; tests/golden/turn_memory says how.

The whole server runs in this process, on either store, with a clock that the script sets. Of all its parts only the
search is replaced, and only in what context queries find.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

import runekeep_storage.store
from runekeep_server.app import App
from runekeep_server.services import build_services
from runekeep_server.settings import Settings
from runekeep_server.turns import search
from runekeep_storage.accounts.usage_stats import Counting
from tests.support.callers import Caller
from tests.support.storage.databases import Clock, NewStore, clock, new_store
from tests.support.turn_script import FOLDER, GoldenText, KnownHits, Replay, Script

__all__ = ["clock", "new_store"]

SCRIPT = Script.read()


@pytest.fixture
async def address(new_store: NewStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Of a server on an empty store, whose clock is the fixture's."""
    stored = new_store()
    monkeypatch.setattr(runekeep_storage.store, "_database", lambda options: stored.connect())
    # It writes whenever the clock was set far ahead: on PostgreSQL a call that joins that has the time from before.
    monkeypatch.setattr(Counting, "start", lambda counting: None)
    app = App(Settings(address="127.0.0.1:0", data_dir=tmp_path / "data", embedder="none"), build_services)
    await app.start()
    yield app.address
    await app.stop()


@pytest.mark.parametrize("golden", SCRIPT.texts, ids=lambda golden: golden.file.removesuffix(".txt"))
async def test_an_agent_is_shown_the_text_that_was_written_by_hand(
    golden: GoldenText, address: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = KnownHits(golden.queries)
    monkeypatch.setattr(search, "matches", hits.matches)

    def set_clock(now: int) -> None:
        clock.now = now

    async with grpc.aio.insecure_channel(address) as channel:
        replay = Replay(Caller(channel, SCRIPT.user), SCRIPT, golden, set_clock)
        await replay.run()
        shown = await replay.shown()
    assert hits.asked == hits.expected
    assert shown.text == golden.text
    assert [section.text for section in shown.sections] == golden.text.split("\n\n")
    assert [section.header for section in shown.sections] == [
        block.partition("\n")[0] for block in golden.text.split("\n\n")
    ]


def test_every_text_and_every_choice_of_the_script_is_tried() -> None:
    files = [golden.file for golden in SCRIPT.texts]
    assert sorted(files) == sorted(path.name for path in FOLDER.glob("*.txt"))
    chosen = {name for golden in SCRIPT.texts for name in golden.selections}
    assert chosen == {one["name"] for one in SCRIPT.of_kind("select")}
    assert {golden.at for golden in SCRIPT.texts} == set(SCRIPT.of_kind("point"))
