"""Repairs: one is known as long as its lease, and to nobody else."""

import pytest

from runekeep_storage.database import Database
from runekeep_storage.errors import LeaseLost
from runekeep_storage.jobs import jobs, repairs
from tests.support.storage.databases import ANN, BOB, CAT, claim, queue

pytestmark = pytest.mark.postgres_long


async def test_a_repair_is_known_as_long_as_its_lease(database: Database) -> None:
    await queue(database, ANN, "t1")
    await queue(database, BOB, "t2")
    job, other = await claim(database), await claim(database)
    assert await database.read_global(repairs.asked, job) is None
    asked = await database.write(repairs.ask, ANN, job.lease, {"output_id": "o", "refused": [{"uri": "ü"}]})
    assert asked == job
    assert await database.read_global(repairs.asked, job) == {
        "output_id": "o", "refused": [{"uri": "ü"}], "token": job.token,
    }  # fmt: skip
    assert await database.read_global(repairs.asked, other) is None

    with pytest.raises(LeaseLost):
        await database.write(repairs.ask, CAT, job.lease, {})
    await database.write_global(jobs.requeue, job, None, delay=0, counts=None)
    with pytest.raises(LeaseLost):
        await database.write(repairs.ask, ANN, job.lease, {})
    again = await claim(database)
    assert again.job_id == job.job_id
    assert await database.read_global(repairs.asked, again) is None
