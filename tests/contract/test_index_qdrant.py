"""The Qdrant driver: what only a server across a wire can do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.index.base import (
    IndexMismatch,
    IndexUnavailable,
)
from tests.contract.index_fixtures import SPACE, ask, opened, point
from tests.contract.qdrant_double import QdrantDouble


@pytest.fixture
async def double(tmp_path: Path) -> AsyncIterator[QdrantDouble]:
    double = QdrantDouble(tmp_path, api_key="right")
    await double.start()
    yield double
    await double.stop()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_refused_key_is_said(double: QdrantDouble, key: str | None) -> None:
    from storage.index.qdrant import QdrantIndex

    index = QdrantIndex("http://127.0.0.1:1", grpc_port=double.port, api_key=key)
    with pytest.raises(IndexUnavailable, match="UNAUTHENTICATED"):
        await index.open(SPACE)
    await index.close()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
async def test_a_server_that_goes_away_and_comes_back(double: QdrantDouble) -> None:
    from storage.index.qdrant import QdrantIndex

    async with opened(QdrantIndex("http://127.0.0.1:1", grpc_port=double.port, api_key="right")) as index:
        await index.upsert([point("tea")])
        await double.stop()
        with pytest.raises(IndexUnavailable, match="UNAVAILABLE"):
            await index.query(ask("tea"))
        assert not await index.healthy()

        await double.start()
        while not await index.healthy():
            pass
        assert await index.count_all() == 1


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
async def test_a_strangers_collection_is_left_alone(double: QdrantDouble) -> None:
    from qdrant_client import AsyncQdrantClient, models

    from storage.index.qdrant import QdrantIndex

    stranger = AsyncQdrantClient(
        url="http://127.0.0.1:1", grpc_port=double.port, prefer_grpc=True, api_key="right", check_compatibility=False
    )
    dense = {"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)}
    await stranger.create_collection("runekeep", vectors_config=dense)
    await stranger.close()

    index = QdrantIndex("http://127.0.0.1:1", grpc_port=double.port, api_key="right")
    with pytest.raises(IndexMismatch, match="does not say which vectors it holds"):
        await index.open(SPACE)
    await index.close()


async def test_a_server_that_is_not_there_by_rest() -> None:
    from storage.index.qdrant import QdrantIndex

    index = QdrantIndex("http://127.0.0.1:1")
    with pytest.raises(IndexUnavailable, match=r"Qdrant failed: .*connect"):
        await index.open(SPACE)
    await index.close()
