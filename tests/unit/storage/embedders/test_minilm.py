"""The built-in embedder, with its real model."""

import asyncio
import math
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runekeep_storage.embedders import KNOWN, Embedder, EmbedderUnavailable, EmbeddingOptions, open_embedder
from runekeep_storage.embedders import minilm as module
from runekeep_storage.embedders.vectors import cosine, from_bytes, to_bytes

LONG = "The train to the coast leaves in the early morning and the tickets are sold at the counter. "


@pytest.fixture
async def minilm() -> AsyncIterator[Embedder]:
    embedder = open_embedder("minilm")
    assert embedder is not None
    yield embedder
    await embedder.close()


async def test_vectors_say_what_texts_are_about(minilm: Embedder) -> None:
    await minilm.warm()
    dog, puppy, tax = await minilm.embed(["My dog loves the park", "A puppy that enjoys walks", "Tax forms are due"])

    assert len(dog) == 4 * minilm.dimension
    assert math.sqrt(sum(number * number for number in from_bytes(dog))) == pytest.approx(1, abs=1e-5)
    assert cosine(dog, puppy) > cosine(dog, tax) + 0.2


async def test_a_vector_does_not_depend_on_its_batch(minilm: Embedder) -> None:
    texts = ["tea", LONG * 10, "a kettle", "", LONG] * 9
    alone = {text: (await minilm.embed([text]))[0] for text in set(texts)}

    together = await minilm.embed(texts, bulk=True)

    assert together == [alone[text] for text in texts]


async def test_the_graph_computes_what_the_published_model_does(minilm: Embedder) -> None:
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    published = onnxruntime.InferenceSession(module.model_path(), providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(module.TOKENIZER_PATH))
    tokenizer.enable_truncation(max_length=256)
    tokenizer.no_padding()
    texts = ["", "tea", "My dog loves the park", "Ada, Bob & Co. owe us 1,204.50 EUR since 2026-03-07", LONG, LONG * 10]

    for text, vector in zip(texts, await minilm.embed(texts), strict=True):
        ids = np.array([tokenizer.encode(text.strip()).ids])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (rows,) = published.run(None, inputs)
        assert cosine(vector, to_bytes(rows[0].mean(axis=0))) > 0.9999, text


async def test_the_model_reads_256_tokens_and_no_more(minilm: Embedder) -> None:
    filler = "word " * 180
    plain, early, late = await minilm.embed(
        [filler + "end " * 200, filler + "volcano " + "end " * 200, filler + "end " * 200 + "volcano"]
    )

    assert cosine(plain, early) < 0.9999
    assert cosine(plain, late) > 0.9999


async def test_no_texts_no_vectors(minilm: Embedder) -> None:
    assert await minilm.embed([]) == []


async def test_a_query_goes_before_bulk_work(minilm: Embedder) -> None:
    await minilm.warm()
    bulk = asyncio.create_task(minilm.embed([LONG] * 100, bulk=True))
    await asyncio.sleep(0)

    await minilm.embed(["a question"], query=True)

    assert not bulk.done()
    assert len(await bulk) == 100


async def test_a_cancelled_caller_leaves_the_worker_alive(minilm: Embedder) -> None:
    await minilm.warm()
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    # Given up in the middle of a batch, and before its turn came.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await minilm.embed([LONG * 10] * 5)
    waiting = asyncio.create_task(minilm.embed([LONG] * 20, bulk=True))
    await asyncio.sleep(0)
    waiting.cancel()

    (vector,) = await minilm.embed(["still here"], bulk=True)

    assert len(vector) == 4 * minilm.dimension
    assert waiting.cancelled()
    assert faults == []


async def test_closing_fails_what_waits_and_what_comes(minilm: Embedder) -> None:
    await minilm.warm()
    waiting = asyncio.create_task(minilm.embed([LONG] * 200, bulk=True))
    await asyncio.sleep(0)

    await minilm.close()

    with pytest.raises(EmbedderUnavailable, match="closed"):
        await waiting
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await minilm.embed(["tea"])


async def test_another_file_under_the_same_name_is_refused(
    minilm: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "tokenizer.json"
    shutil.copy(module.TOKENIZER_PATH, changed)
    changed.write_bytes(changed.read_bytes() + b"\n")
    monkeypatch.setattr(module, "TOKENIZER_PATH", changed)

    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match=r"not the expected file: its sha256 is .* not be50c362"):
            await minilm.embed(["tea"])


async def test_a_missing_model_package_is_named(minilm: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MODEL_PACKAGE", "no_such_package")

    with pytest.raises(EmbedderUnavailable, match="no_such_package is not installed"):
        await minilm.warm()


def test_names() -> None:
    made = {name: open_embedder(name, options=EmbeddingOptions(url="http://a.example")) for name in KNOWN}
    assert made.pop("none") is None
    assert {name: embedder.dimension for name, embedder in made.items() if embedder} == {
        "minilm": 384,
        "bilingual": 896,
        "openai": 0,
        "fastembed": 0,
        "minilm+openai": 384,
        "minilm+fastembed": 384,
    }
    with pytest.raises(ValueError, match="unknown embedder 'word2vec'") as caught:
        open_embedder("word2vec")
    assert all(name in str(caught.value) for name in KNOWN)


def test_vectors_are_compared_as_numbers() -> None:
    assert from_bytes(to_bytes([1.0, -2.5])) == [1.0, -2.5]
    assert to_bytes([1.0]) == b"\x00\x00\x80\x3f"
    assert cosine(to_bytes([1, 0]), to_bytes([2, 0])) == pytest.approx(1)
    assert cosine(to_bytes([1, 0]), to_bytes([0, 3])) == 0
    assert cosine(to_bytes([0, 0]), to_bytes([0, 3])) == 0
    with pytest.raises(ValueError, match="1 and 2 numbers"):
        cosine(to_bytes([1]), to_bytes([1, 0]))
