"""Every vector index: Qdrant Edge in its child process, the Qdrant driver against a double, and, if QDRANT_URL is set,
the Qdrant driver against a real server. QDRANT_URL has the form of `index_url`, and QDRANT_API_KEY is its key."""

import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from runekeep_storage.index.edge import EdgeIndex
from tests.doubles.qdrant import QdrantDouble
from tests.support.storage.index_points import SERVER_URL, Maker


@pytest.fixture(params=["edge", "qdrant double", *(["qdrant server"] if SERVER_URL else [])])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Maker]:
    """Makes index objects over one and the same stored index, empty at first."""
    from runekeep_storage.index.qdrant import QdrantIndex

    if request.param == "edge":
        yield partial(EdgeIndex, tmp_path / "index")
    elif request.param == "qdrant double":
        # The first version that has every datatype.
        double = QdrantDouble(tmp_path, version="1.20.0")
        await double.start()
        yield partial(QdrantIndex, f"grpc://127.0.0.1:{double.port}")
        await double.stop()
    else:
        assert SERVER_URL is not None
        on_server = partial(
            QdrantIndex,
            SERVER_URL,
            collection=f"runekeep-test-{uuid4()}",
            api_key=os.environ.get("QDRANT_API_KEY"),
        )
        yield on_server
        cleaner = on_server()
        await cleaner.clear()
        await cleaner.close()
