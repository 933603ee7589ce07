"""The offline engine on texts that were made to hold it up. Only the time limit of pytest measures."""

import asyncio

import pytest
import structlog

from extractor.offline import OfflineEngine
from extractor.offline.cases import find_cases
from extractor.offline.classify import classify
from extractor.offline.likeness import ByWords
from extractor.offline.plan import Permit
from extractor.offline.sentences import MESSAGE_MOST, sentences_of
from tests.doubles.fixed_job import memory, message
from tests.unit.extractor.embedding_job import EmbeddingJob

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("unit", ["A. ", ". b", "„", "e.g. ", "I. ", "no, not ", "my sister ", '"I am. ', "1 "])
async def test_a_hostile_message_gives_an_output(unit):
    job = EmbeddingJob([message(1, unit * (100_000 // len(unit)), speaker="Mara")])
    assert (await OfflineEngine().extract(job)).summary is not None


@pytest.mark.parametrize(
    "unit", ["The import number {n} fails with error. ", "The job fails with error {n}. It works now, thanks. "]
)
def test_thousands_of_troubles_are_sorted(unit):
    text = " ".join(unit.format(n=n) for n in range(4_000))
    job = EmbeddingJob([message(n, text[n * 20_000 : (n + 1) * 20_000], speaker="Mara") for n in range(1, 9)])
    sentences, _ = sentences_of([(said, "") for said in job.messages])
    statements = classify(sentences, ByWords())
    assert len(statements) > 1_000
    assert len(find_cases(statements, Permit.of(job), ByWords())) <= 100


async def test_what_is_searched_for_is_capped():
    texts = [
        *(f"Actually, the weather in town {n} was not like that." for n in range(MESSAGE_MOST)),
        *(f"We solved the flaky login test {n} by freezing the clock." for n in range(MESSAGE_MOST)),
        *(f"I moved from town {n} to village {n} in 2019." for n in range(MESSAGE_MOST)),
    ]
    job = EmbeddingJob(
        [
            message(n, " ".join(texts[start : start + MESSAGE_MOST]), speaker="Mara")
            for n, start in enumerate(range(0, len(texts), MESSAGE_MOST), 1)
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
    said = message(1, "I walk to the sea. " * (MESSAGE_MOST + 5), speaker="Mara")
    with structlog.testing.capture_logs() as logs:
        await OfflineEngine().extract(EmbeddingJob([said]))
    (entry,) = [log for log in logs if log["event"] == "sentences_left_out"]
    assert (entry["read"], entry["left_out"]) == (MESSAGE_MOST, 5)


async def test_the_loop_goes_on_while_sentences_are_sorted(monkeypatch):
    """A sorting that waits for the loop would never end on the loop."""
    loop = asyncio.get_running_loop()
    beaten = asyncio.Event()

    def waiting(sentences, likeness, guard):
        asyncio.run_coroutine_threadsafe(_set(beaten), loop).result()
        return classify(sentences, likeness, guard)

    monkeypatch.setattr("extractor.offline.engine.classify", waiting)
    output = await OfflineEngine().extract(EmbeddingJob([message(1, "I live in Porto.", speaker="Mara")]))
    assert beaten.is_set()
    assert output.operations


async def _set(event):
    event.set()
