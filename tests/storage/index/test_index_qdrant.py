"""The Qdrant driver: what only a server across a wire can do."""

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest

from runekeep_storage.index.base import IndexMismatch, IndexTooOld, IndexUnavailable, VectorDatatype
from tests.doubles.qdrant import QdrantDouble
from tests.support.storage.index_points import SPACE, ask, opened, point


@pytest.fixture
async def double(tmp_path: Path) -> AsyncIterator[QdrantDouble]:
    double = QdrantDouble(tmp_path, api_key="right")
    await double.start()
    yield double
    await double.stop()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_refused_key_is_said(double: QdrantDouble, key: str | None) -> None:
    from runekeep_storage.index.qdrant import QdrantIndex

    index = QdrantIndex(f"grpc://127.0.0.1:{double.port}", api_key=key)
    with pytest.raises(IndexUnavailable, match="UNAUTHENTICATED"):
        await index.open(SPACE)
    await index.close()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
async def test_a_server_that_goes_away_and_comes_back(double: QdrantDouble) -> None:
    from runekeep_storage.index.qdrant import QdrantIndex

    async with opened(QdrantIndex(f"grpc://127.0.0.1:{double.port}", api_key="right")) as index:
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

    from runekeep_storage.index.qdrant import QdrantIndex

    stranger = AsyncQdrantClient(
        url="http://127.0.0.1:1", grpc_port=double.port, prefer_grpc=True, api_key="right", check_compatibility=False
    )
    dense = {"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)}
    await stranger.create_collection("runekeep", vectors_config=dense)
    await stranger.close()

    index = QdrantIndex(f"grpc://127.0.0.1:{double.port}", api_key="right")
    with pytest.raises(IndexMismatch, match="does not say which vectors it holds"):
        await index.open(SPACE)
    await index.close()


async def test_a_server_that_is_not_there_by_rest() -> None:
    from runekeep_storage.index.qdrant import QdrantIndex

    index = QdrantIndex("http://127.0.0.1:1")
    with pytest.raises(IndexUnavailable, match=r"Qdrant failed: .*connect"):
        await index.open(SPACE)
    await index.close()


async def test_a_call_goes_to_a_node_that_answers(tmp_path: Path) -> None:
    from runekeep_storage.index.qdrant import QdrantIndex

    # Two nodes that share their data, like nodes of one cluster.
    first, second = QdrantDouble(tmp_path), QdrantDouble(tmp_path)
    second.share(first)
    await first.start()
    await second.start()
    async with opened(QdrantIndex(f"grpc://127.0.0.1:{first.port}, grpc://127.0.0.1:{second.port}")) as index:
        await index.upsert([point("tea")])
        assert "/qdrant.Points/Upsert" in first.calls and not second.calls
        await first.stop()
        # No call fails: no read, no write, and none of those that run concurrently.
        hits = await asyncio.gather(*(index.query(ask("tea")) for _ in range(5)))
        assert all(found.sparse for found in hits)
        await index.upsert([point("coffee")])
        await first.start()
        await second.stop()
        # The client waits half a second before it tries again to connect to a node that was away.
        while not await index.healthy():
            pass
        assert await index.count_all() == 2
        await first.stop()
        with pytest.raises(IndexUnavailable, match="UNAVAILABLE"):
            await index.count_all()


async def test_a_server_that_counts_words_of_other_tenants_is_refused(tmp_path: Path) -> None:
    from runekeep_storage.index.qdrant import QdrantIndex

    for version, accepted in (("1.18.4", False), ("1.19.0", True), ("2.0.1", True), ("1.20.0-dev", True)):
        double = QdrantDouble(tmp_path / version, version=version)
        await double.start()
        index = QdrantIndex(f"grpc://127.0.0.1:{double.port}")
        if accepted:
            await index.open(SPACE)
        else:
            with pytest.raises(IndexMismatch, match=r"Qdrant 1\.18\.4 is too old.*1\.19 or newer"):
                await index.open(SPACE)
        await index.close()
        await double.stop()


async def test_a_server_that_lacks_int8_is_refused_for_int8_alone(tmp_path: Path) -> None:
    from runekeep_storage.index.qdrant import QdrantIndex

    refused = {("1.19.0", VectorDatatype.INT8)}
    for version, datatype in product(("1.19.0", "1.20.0"), VectorDatatype):
        double = QdrantDouble(tmp_path / version / datatype, version=version)
        await double.start()
        index = QdrantIndex(f"grpc://127.0.0.1:{double.port}", datatype=datatype)
        if (version, datatype) in refused:
            with pytest.raises(IndexTooOld, match=r"Qdrant 1\.19\.0 cannot hold vectors as int8.*1\.20.*float16"):
                await index.open(SPACE)
            assert "Create" not in " ".join(double.calls)
        else:
            await index.open(SPACE)
        await index.close()
        await double.stop()


def test_addresses_of_nodes() -> None:
    from runekeep_storage.index.qdrant_nodes import NodeAddress, parse_addresses

    assert parse_addresses("grpc://one, grpcs://two:6335,https://[::1]:6333,grpc://[::1]") == (
        NodeAddress("http://one", 6334),
        NodeAddress("https://two", 6335),
        NodeAddress("https://[::1]:6333", None),
        NodeAddress("http://[::1]", 6334),
    )
    for wrong in ("", "grpc://", "one:6334", "ftp://one"):
        with pytest.raises(ValueError):
            parse_addresses(wrong)
