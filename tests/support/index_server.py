"""The Qdrant double as a process that may be killed: `python -m tests.support.index_server DIRECTORY PORT`.

Beside each collection it keeps the request that made it, so that the next process serves what this one acknowledged.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import qdrant_edge as edge
from qdrant_client import grpc as wire

from tests.doubles.qdrant import Collection, QdrantDouble


class LastingDouble(QdrantDouble):
    """Serves again what an earlier process on the same directory served. Collections are not dropped here."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory)
        self.port = port
        for request in sorted(directory.glob("collection-*.request")):
            created = wire.CreateCollection.FromString(request.read_bytes())
            shard = edge.EdgeShard.load(str(request.with_suffix("")), None)
            self._collections[created.collection_name] = Collection(shard, created)
            self._made += 1

    async def Create(self, request: Any, context: Any) -> Any:
        answer = await super().Create(request, context)
        (self._directory / f"collection-{self._made}.request").write_bytes(request.SerializeToString())
        return answer


async def _serve(directory: Path, port: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    double = LastingDouble(directory, port)
    await double.start()
    print(json.dumps({"event": "serving", "port": double.port}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
