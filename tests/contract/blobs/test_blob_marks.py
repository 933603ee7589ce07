"""Blobs that are put while sweeps go on: none is left behind that no row names, and one that is named stays."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runekeep_schemas.turns.buckets import Bucket, bucket_id
from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import GRACE_SECONDS, FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.errors import NotFound, VersionConflict
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.turns import buckets
from tests.contract.turns.test_turn_costs import FEW, MANY, filled
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, Clock, NewStore, talk
from tests.support.storage.deletions import dump
from tests.support.storage.query_costs import Cost, Measured, assert_as_cheap

pytestmark = pytest.mark.postgres_long

Step = Callable[[], Awaitable[None]]


class Interrupted(FolderBlobs):
    """Blobs before the next put of which something else happens: `meanwhile`, on the loop of the test."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._at = root
        self._loop = asyncio.get_running_loop()
        self.meanwhile: Step | None = None

    def put(self, space: Space, data: bytes) -> str:
        if self.meanwhile is not None:
            first, self.meanwhile = self.meanwhile, None
            asyncio.run_coroutine_threadsafe(self._run(first), self._loop).result()
        return super().put(space, data)

    async def _run(self, step: Step) -> None:
        await step()

    def names_of_all(self) -> set[str]:
        return {path.name for path in self._files_of_all()}

    def age(self, seconds: float = GRACE_SECONDS + 60) -> None:
        for path in self._files_of_all():
            at = path.stat().st_mtime - seconds
            os.utime(path, (at, at))

    def _files_of_all(self) -> list[Path]:
        return [path for path in self._at.rglob("*") if path.is_file()]


@pytest.fixture
async def blobs(tmp_path: Path) -> Interrupted:
    return Interrupted(tmp_path / "blobs")


BUCKET = Bucket(bucket_id("tea"), "tea", "what the user said", updated_at=1)
LATER = replace(BUCKET, updated_at=2)


async def write(database: Database, blobs: FolderBlobs, bucket: Bucket, base: str = "") -> str:
    kept = await buckets.keep(database, blobs, ANN, bucket)
    await database.write(buckets.write, ANN, "s", bucket, kept.blob, kept.hosted_uri, base=base)
    return kept.blob


async def hours_pass(blobs: Interrupted, clock: Clock, cleaner: Cleaner) -> None:
    for _ in range(3):
        blobs.age()
        clock.advance(GRACE_SECONDS + 60)
        await cleaner.clean()


@pytest.mark.parametrize("whole", ["session", "user"])
async def test_a_blob_that_arrives_after_the_sweep_of_a_deletion_goes_too(
    database: Database, blobs: Interrupted, clock: Clock, whole: str
) -> None:
    cleaner = Cleaner(database, blobs)
    await talk(database, ANN, "s", "words")
    first = await write(database, blobs, BUCKET)
    blobs.age()

    async def deleted() -> None:
        if whole == "user":
            await database.write(delete_user, ANN, "")
        else:
            await database.write(delete_session, ANN, "s", "")
        await cleaner.clean()
        assert blobs.names_of_all() == set()

    blobs.meanwhile = deleted
    with pytest.raises((NotFound, VersionConflict)):
        await write(database, blobs, LATER, base=first)
    assert len(blobs.names_of_all()) == 1

    await hours_pass(blobs, clock, cleaner)

    assert blobs.names_of_all() == set()
    assert "blob_sweeps" not in await dump(database, ANN)


async def test_a_blob_that_is_replaced_during_a_sweep_goes_too(
    database: Database, blobs: Interrupted, clock: Clock
) -> None:
    cleaner = Cleaner(database, blobs)
    await talk(database, ANN, "s", "words")
    first = await write(database, blobs, BUCKET)
    blobs.age()
    clock.advance(GRACE_SECONDS + 60)

    # The sweep of the first, which finds it named still.
    blobs.meanwhile = cleaner.clean
    second = await write(database, blobs, LATER, base=first)
    assert blobs.names_of_all() == {first, second}

    await hours_pass(blobs, clock, cleaner)

    assert blobs.names_of_all() == {second}
    assert "blob_sweeps" not in await dump(database, ANN)


async def test_a_mark_stands_as_long_as_the_blob_may_come(database: Database, blobs: Interrupted, clock: Clock) -> None:
    """However often it is swept meanwhile; and each of these sweeps is done at once."""
    cleaner = Cleaner(database, blobs)
    await talk(database, ANN, "s", "words")
    for _ in range(3):
        await database.write(sweeps.expect, ANN)
        await database.write(sweeps.ask, ANN)
        await cleaner.clean()
        assert await database.read_global(sweeps.waiting) is None
        (mark,) = (await dump(database, ANN))["blob_sweeps"]
        assert mark["due_at"] == clock.now + round(GRACE_SECONDS * 1_000_000)
        clock.advance(GRACE_SECONDS / 2)
    await database.write(sweeps.ask, BOB)

    clock.advance(GRACE_SECONDS / 2)
    await cleaner.clean()

    assert "blob_sweeps" not in await dump(database, ANN)
    assert "blob_sweeps" not in await dump(database, BOB), "nothing was said to come"


async def test_what_names_blobs_is_found_without_a_look_at_all_the_rest(new_store: NewStore) -> None:
    """Each change of a bucket brings a sweep: it must not cost what the user has ever said."""
    costs = []
    for count in (FEW, MANY):
        async with filled(new_store, count) as database:
            names = await database.write_global(_keep_some)
            cost = Cost()

            async def work(tx: Tx, space: Space, cost: Cost = cost) -> set[str]:
                return await sweeps.named(Measured(tx, cost), space)

            assert await database.read(work, ANN) == names
            costs.append(cost)
            if isinstance(database, SqliteDatabase):
                assert not [plan for plan in cost.plans if "SEARCH messages USING PRIMARY KEY" in plan]
    assert_as_cheap(*costs)


async def _keep_some(tx: Tx) -> set[str]:
    """A bucket, and two outputs of one call id, of which the first is named by its message alone."""
    bucket = BUCKET.bucket_id
    await buckets.write(tx, ANN, "s", BUCKET, "of-bucket", "", base="")
    for number, name in enumerate(("first", "second")):
        part = {"type": "tool", "tool_id": "c", "tool_name": "t", "output": "", STORED_OUTPUT: name}
        message = Message(f"{bucket}-{number}", "assistant", (part,))
        await add_messages(tx, ANN, "s", [message], {"c": (name, 1)})
    return {"of-bucket", "first", "second"}
