"""The offline engine on texts that were made to hold it up. Only the time limit of pytest measures."""

import asyncio

import pytest
import structlog

from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.offline.sentences import MAX_MESSAGE_SENTENCES
from runekeep_extractor.offline.statements import classify
from tests.doubles.fixed_job import memory, message
from tests.unit.extractor.embedding_job import EmbeddingJob

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    "unit",
    [
        "A. ",
        ". b",
        "„",
        "e.g. ",
        "I. ",
        "no, not ",
        "my sister ",
        '"I am. ',
        "1 ",
        "I have been ",
        "and I ",
        "no ",
        "thanks ",
        "on Monday ",
    ],
)
async def test_a_hostile_message_gives_an_output(unit):
    job = EmbeddingJob([message(1, unit * (100_000 // len(unit)), speaker="Mara")])
    assert (await OfflineEngine().extract(job)).summary is not None


async def test_what_is_searched_for_is_capped():
    texts = [
        *(f"Actually, the weather in town {n} was not like that." for n in range(MAX_MESSAGE_SENTENCES)),
        *(f"We solved the flaky login test {n} by freezing the clock." for n in range(MAX_MESSAGE_SENTENCES)),
        *(f"I moved from town {n} to village {n} in 2019." for n in range(MAX_MESSAGE_SENTENCES)),
    ]
    job = EmbeddingJob(
        [
            message(n, " ".join(texts[start : start + MAX_MESSAGE_SENTENCES]), speaker="Mara")
            for n, start in enumerate(range(0, len(texts), MAX_MESSAGE_SENTENCES), 1)
        ]
    )
    await OfflineEngine().extract(job)
    assert 100 < len(job.finds) <= 500


async def test_hostile_lines_of_memories_are_read():
    spaces = " " * 100_000
    content = "\n".join([f"- Ana: x{spaces}y", spaces, f"-{spaces}z", "(1" * 50_000, "- Ana (2026-03-05): I like tea."])
    job = EmbeddingJob(
        [message(1, "I like tea and I live in Porto.", speaker="Ana")],
        [memory("viking://user/default/memories/profile.md", "profile", {"content": content})],
    )
    output = await OfflineEngine().extract(job)
    assert "Porto" in str(output.operations)


async def test_what_is_left_out_is_logged():
    said = message(1, "I walk to the sea. " * (MAX_MESSAGE_SENTENCES + 5), speaker="Mara")
    with structlog.testing.capture_logs() as logs:
        await OfflineEngine().extract(EmbeddingJob([said]))
    (entry,) = [log for log in logs if log["event"] == "sentences_left_out"]
    assert (entry["read"], entry["left_out"]) == (MAX_MESSAGE_SENTENCES, 5)


async def test_the_loop_goes_on_while_sentences_are_sorted(monkeypatch):
    """A sorting that waits for the loop would never end on the loop."""
    loop = asyncio.get_running_loop()
    beaten = asyncio.Event()

    def waiting(sentences, guard):
        asyncio.run_coroutine_threadsafe(_set(beaten), loop).result()
        return classify(sentences, guard)

    monkeypatch.setattr("runekeep_extractor.offline.engine.classify", waiting)
    output = await OfflineEngine().extract(EmbeddingJob([message(1, "I live in Porto.", speaker="Mara")]))
    assert beaten.is_set()
    assert output.operations


async def _set(event):
    event.set()
