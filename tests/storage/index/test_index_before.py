"""Points of the release before and of this one in one index."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.index import edge_engine
from runekeep_storage.index import payload as shape
from runekeep_storage.index.base import (
    IndexPoint,
    IndexQuery,
    PointKind,
    VectorIndex,
    tenant_of,
)
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.index.edge_engine import EdgeEngine
from runekeep_storage.index.stored_vectors import StoredVectors
from tests.doubles.qdrant import QdrantDouble
from tests.support.storage.index_points import EAST, SPACE, ask, opened, point

OLD = replace(
    point("green tea", number=1),
    kind=PointKind.PASSAGE,
    uri="viking://user/ann/sessions/s/messages/4",
    version=0,
    session="s",
    sequence=4,
    sources=("s",),
    time=1_700_000_000,
    fact=2,
)
MEMORY = replace(point("black tea", number=2), memory_type="preferences", tags=("drinks",))
NEW = replace(point("white tea", number=3), dense=EAST)
QUERY: IndexQuery = ask("tea", dense=EAST)


def payload_before(point: IndexPoint) -> dict[str, Any]:
    """As storage/runekeep_storage/index/payload.py of the release before has it."""
    return {
        "tenant": tenant_of(point.account, point.user),
        "kind": point.kind.value,
        "uri": point.uri,
        "ancestors": shape.ancestors(point.uri),
        "version": point.version,
        "order": point.order,
        "memory_type": point.memory_type,
        "peer": point.peer or "",
        "session": point.session,
        "sequence": point.sequence,
        "sources": list(point.sources),
        "time": point.time,
        "tags": list(point.tags),
        "fact": point.fact,
    }


@pytest.fixture
async def double(tmp_path: Path) -> AsyncIterator[QdrantDouble]:
    double = QdrantDouble(tmp_path)
    await double.start()
    yield double
    await double.stop()


@pytest.fixture(params=["edge", "qdrant"])
async def index(
    request: pytest.FixtureRequest, tmp_path: Path, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[VectorIndex]:
    """Holds OLD and MEMORY as the release before wrote them."""
    from runekeep_storage.index.qdrant import QdrantIndex

    made: VectorIndex
    with monkeypatch.context() as before:
        before.setattr(shape, "payload_of", payload_before)
        before.setattr(shape, "fields_before", lambda point: {})
        if request.param == "edge":
            # In this process, where it writes what the release before did.
            engine = EdgeEngine(tmp_path / "index")
            engine.open(SPACE)
            engine.upsert([OLD, MEMORY])
            engine.close()
            made = EdgeIndex(tmp_path / "index")
        else:
            made = QdrantIndex(f"grpc://127.0.0.1:{double.port}")
            await made.open(SPACE)
            await made.upsert([OLD, MEMORY])
    async with opened(made):
        yield made


async def test_points_of_the_release_before_are_found_beside_new_ones(index: VectorIndex) -> None:
    before = await index.query(QUERY)
    await index.upsert([NEW])
    after = await index.query(QUERY)
    await index.upsert([OLD, MEMORY])
    written_anew = await index.query(QUERY)

    for leg, some, all in (
        (before.dense, after.dense, written_anew.dense),
        (before.sparse, after.sparse, written_anew.sparse),
    ):
        assert {hit.id for hit in leg} == {OLD.id, MEMORY.id}
        assert {hit.id for hit in some} == {OLD.id, MEMORY.id, NEW.id}
        # Whoever wrote them, the same is said of them.
        assert some == all


async def test_servers_of_the_release_before_read_what_this_one_writes_to_a_shared_index(double: QdrantDouble) -> None:
    from qdrant_client import AsyncQdrantClient

    from runekeep_storage.index.qdrant import QdrantIndex

    async with opened(QdrantIndex(f"grpc://127.0.0.1:{double.port}")) as index:
        await index.upsert([OLD, MEMORY])
        client = AsyncQdrantClient(
            url="http://127.0.0.1:1", grpc_port=double.port, prefer_grpc=True, check_compatibility=False
        )
        records = await client.retrieve(
            "runekeep", [OLD.id, MEMORY.id], with_payload=list(shape.HIT_FIELDS_BEFORE), with_vectors=False
        )
        await client.close()
    for written, record in zip((OLD, MEMORY), sorted(records, key=lambda one: str(one.id)), strict=True):
        # It asks for these, by key or by `get`, and takes nothing and an empty list for the same.
        asked = {field: payload_before(written)[field] for field in shape.HIT_FIELDS_BEFORE}
        assert record.payload == {field: value for field, value in asked.items() if value not in (None, [])}


def test_a_shard_that_was_told_how_to_build_graphs_is_the_same_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other way about, where a server goes back to the release before."""
    import qdrant_edge as edge

    def config_before(vectors: StoredVectors) -> Any:
        return edge.EdgeConfig(
            vectors={shape.DENSE: edge.EdgeVectorParams(vectors.dimensions[shape.DENSE], edge.Distance.Cosine)},
            sparse_vectors={shape.SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
            hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=100, full_scan_threshold=10_000, payload_m=16),
            max_search_threads=1,
        )

    engine = EdgeEngine(tmp_path)
    with monkeypatch.context() as before:
        before.setattr(edge_engine, "_config", config_before)
        id = engine.open(SPACE)
        engine.upsert([OLD, MEMORY, NEW])
        found = engine.query(QUERY)
        engine.close()
    assert engine.open(SPACE) == id
    assert engine.query(QUERY) == found
    assert len(found.dense) == 3
    engine.purge_start()
    while engine.purge_step():
        pass
    engine.close()
    monkeypatch.setattr(edge_engine, "_config", config_before)
    assert engine.open(SPACE) == id
    assert engine.query(QUERY) == found
    engine.close()
