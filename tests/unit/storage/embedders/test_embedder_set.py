"""The embedders that a server's settings describe."""

import pytest

from runekeep_storage.embedders import Embedder, EmbeddingOptions, embedder_set
from runekeep_storage.embedders.embedder_set import EmbedderSet
from tests.doubles.word_embedder import WordEmbedder


async def test_an_embedder_is_opened_once_however_often_it_is_looked_up_and_closed_with_the_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[WordEmbedder] = []

    def open_embedder(name: str, *, threads: int, options: EmbeddingOptions) -> Embedder | None:
        if name == "none":
            return None
        opened.append(WordEmbedder())
        return opened[-1]

    monkeypatch.setattr(embedder_set, "open_embedder", open_embedder)
    options = EmbeddingOptions(url="http://127.0.0.1:1/v1", model=WordEmbedder.model, dimension=WordEmbedder.dimension)
    embedders = EmbedderSet("none", 1, (EmbeddingOptions(), options))
    for _ in range(2):
        assert embedders.find("openai", "unknown") is None
        assert embedders.find("openai", WordEmbedder.model) is opened[0]
    await embedders.close()
    assert [one.down for one in opened] == [True]
