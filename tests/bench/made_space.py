"""A space of many messages, written by the store's own code as a server would, but for its vectors, which are drawn by
lot: to embed what is said would take some hundred times as long as all the rest."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.progress import Progress

from runekeep_schemas.policy import Plan
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.wire.messages import from_wire
from runekeep_storage.database import Space, Tx
from runekeep_storage.index.base import VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.records import Message
from runekeep_storage.relay.passage_relay import PassageRelay
from runekeep_storage.sessions import archives, sessions
from tests.bench.conversations import long
from tests.bench.load.inserts import database_at
from tests.support.appending import add_messages

MESSAGES_A_SESSION = 250
PLAN = json.dumps(Plan(True, (), ("preferences",), (), session_skills=False).to_json())


class DrawnVectors:
    """In place of an embedder: a vector for each text, always the same ones in the same order."""

    def __init__(self, space: VectorSpace) -> None:
        self.model = space.model
        self.dimension = space.dimension
        self._lot = np.random.default_rng(11)

    bulk_texts = 32

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        vectors = self._lot.standard_normal((len(texts), self.dimension), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return [vector.tobytes() for vector in vectors]

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return


async def grow(
    store_url: str, index: Path, vectors: VectorSpace, space: Space, sizes: tuple[int, int], progress: Progress
) -> None:
    """Makes a space of `sizes[0]` messages one of `sizes[1]`, all of which can be found. No server may run on the store
    or the index."""
    database = database_at(store_url)
    edge = EdgeIndex(index)
    await database.open()
    try:
        attachment = Attachment(database, edge, vectors)
        relay = PassageRelay(
            database,
            attachment,
            SpaceEmbedders(database, attachment, DrawnVectors(vectors)),
            Registry.load(),
            lambda: None,
        )
        index_id = await attachment.attach()
        bar = progress.add_task(f"a space of {sizes[1]:,} messages", total=sizes[1] - sizes[0])
        said = [from_wire("", message) for message in await asyncio.to_thread(long, sizes[1])]
        for start in range(sizes[0], sizes[1], MESSAGES_A_SESSION):
            some = said[start : min(start + MESSAGES_A_SESSION, sizes[1])]
            await database.write(_committed, space, f"session-{start:06d}", some)
            progress.advance(bar, len(some))
        while await relay.step(index_id):
            pass
        await edge.flush()
        progress.remove_task(bar)
    finally:
        await edge.close()
        await database.close()


async def _committed(tx: Tx, space: Space, name: str, said: list[Message]) -> None:
    """A session that says this, and its commit."""
    await sessions.create(tx, space, name)
    await add_messages(tx, space, name, said, {})
    batch = await archives.to_archive(tx, space, name, 0)
    assert batch is not None
    await archives.commit(tx, space, batch, task_id=f"task-{name}", plan=PLAN, traceparent="")
