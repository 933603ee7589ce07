"""A change of the embedder: what another one made is forgotten, so that it is made anew, in spaces of any size."""

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.relay import rebuild
from runekeep_storage.relay.rebuild import write_space
from tests.doubles.word_embedder import WordEmbedder, vector
from tests.support.storage.databases import ANN, BOB, revise
from tests.support.storage.deletions import fill
from tests.support.storage.search import Search, write
from tests.support.storage.statements import Noted

pytestmark = pytest.mark.postgres_long


async def test_vectors_of_another_embedder_are_forgotten_page_by_page(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all versions and passages, however many; a server that dies over it leaves the rest to the next one."""
    monkeypatch.setattr(rebuild, "PAGE", 10)
    other = {"dense": b"1234", "dense_model": "another"}
    for number in range(4):
        await revise(
            search.database,
            ANN,
            f"ann-{number}",
            *(write(ANN, f"m{one}", number, number + 1, f"tea {one}", **other) for one in range(6)),
        )
    await fill(search.database, ANN, "long", 33)
    await fill(search.database, ANN, "new", 3)
    await fill(search.database, BOB, "long", 12)
    await set_vectors(search.database, ANN, "long", "another")
    await set_vectors(search.database, ANN, "new", WordEmbedder.model)
    await set_vectors(search.database, BOB, "long", "another")
    assert await with_vectors(search.database, ANN) == {"another": 24 + 33, WordEmbedder.model: 3}
    counted = Noted(search.database)

    def dies() -> None:
        if len(counted.changed) == 3:
            raise StoreUnavailable("the server died")

    counted.before_write = dies
    index_id = await search.attachment.id()

    async def write_whole() -> None:
        await write_space(counted, search.index, index_id, ANN, Models(WordEmbedder.model), lambda table, count: None)

    with pytest.raises(StoreUnavailable):
        await write_whole()
    assert counted.changed == [10, 10, 4]
    assert await with_vectors(search.database, ANN) == {"another": 33, WordEmbedder.model: 3}
    counted.before_write = lambda: None
    counted.writes.clear()
    await write_whole()

    # The last of four pages has three, and those of other sessions; then the store is told that the space is written.
    assert counted.changed[:4] == [10, 10, 10, 3] and len(counted.changed) == 5
    assert await with_vectors(search.database, ANN) == {WordEmbedder.model: 3}
    assert await with_vectors(search.database, BOB) == {"another": 12}
    counted.writes.clear()
    await write_whole()
    assert len(counted.changed) == 1, "where nothing is to be forgotten nothing is written"


async def set_vectors(database: Database, space: Space, session_id: str, model: str) -> None:
    async def work(tx: Tx, space: Space) -> None:
        await tx.execute(
            "UPDATE passages SET dense = $4, dense_model = $5 WHERE account = $1 AND user_id = $2 AND session_id = $3",
            space.account,
            space.user,
            session_id,
            vector("words"),
            model,
        )

    await database.write(work, space)


async def with_vectors(database: Database, space: Space) -> dict[str, int]:
    """Rows that have a vector, by its model."""

    async def work(tx: Tx, space: Space) -> dict[str, int]:
        rows = await tx.fetch(
            "SELECT dense_model, COUNT(*) AS count FROM ("
            " SELECT account, user_id, dense, dense_model FROM memories"
            " UNION ALL SELECT account, user_id, dense, dense_model FROM passages) v"
            " WHERE account = $1 AND user_id = $2 AND dense IS NOT NULL GROUP BY dense_model",
            space.account,
            space.user,
        )
        return {row["dense_model"]: row["count"] for row in rows}

    return await database.read(work, space)
