"""What the store keeps of attempts that ended: what they spent, and what was refused of their output."""

import json
from typing import Any

import pytest

from schemas.token_usage import added
from storage import jobs, repairs, tasks
from storage.database import Database, Tx
from storage.errors import LeaseLost
from storage.jobs import Failure
from storage.records import Job
from tests.contract.store_fixtures import ANN, BOB, CAT, claim, queue

BUSY = Failure("model_unavailable", "try later")


def used(phase: str, tokens: int, model: str = "m") -> dict[str, Any]:
    counted = {"calls": 1, "input_tokens": tokens, "output_tokens": tokens * 2}
    return {"model": model, "phase": phase, "cache_read_tokens": 0, "cache_write_tokens": 0, **counted}


async def spends(database: Database, token: int, *usage: dict[str, Any]) -> None:
    await database.write(tasks.spent, ANN, "t1", token, list(usage))


async def totals(database: Database) -> dict[tuple[str, str], tuple[int, int]]:
    kept = json.loads((await database.read(tasks.get, ANN, "t1")).usage)
    entries = added([*kept["earlier"], *kept["attempt"]])
    return {(one["model"], one["phase"]): (one["calls"], one["input_tokens"]) for one in entries}


async def test_what_an_attempt_tells_again_takes_the_place_of_what_it_told(database: Database) -> None:
    await queue(database, ANN, "t1")
    await spends(database, 1, used("reasoning", 10))
    await spends(database, 1, used("reasoning", 10), used("repair", 5))
    await spends(database, 1)
    assert await totals(database) == {("m", "reasoning"): (1, 10), ("m", "repair"): (1, 5)}


async def test_attempts_add_up_by_model_and_phase(database: Database) -> None:
    await queue(database, ANN, "t1")
    for token in (1, 3, 4):
        await spends(database, token, used("reasoning", token))
        await spends(database, token, used("reasoning", 10 * token), used("repair", 1, model=f"m{token}"))
    expected = {("m", "reasoning"): (3, 80), **{(f"m{token}", "repair"): (1, 1) for token in (1, 3, 4)}}
    assert await totals(database) == expected
    # An attempt that is told of late; the one under way may still tell of itself again.
    await spends(database, 2, used("reasoning", 5))
    await spends(database, 4, used("reasoning", 40))
    del expected["m4", "repair"]
    assert await totals(database) == expected | {("m", "reasoning"): (4, 85)}


async def test_a_retry_goes_on_adding_up(database: Database) -> None:
    await queue(database, ANN, "t1")

    async def give_up(tx: Tx, job: Job) -> None:
        await tasks.spent(tx, ANN, job.job_id, job.token, [used("reasoning", 1)])
        await jobs.give_up(tx, job, BUSY, {"outcome": "given_up"})

    for attempt in (1, 2):
        await database.write(give_up, await claim(database))
        assert await totals(database) == {("m", "reasoning"): (attempt, attempt)}
        await database.write(jobs.retry, ANN, "t1")


async def test_a_repair_is_known_as_long_as_its_lease(database: Database) -> None:
    await queue(database, ANN, "t1")
    await queue(database, BOB, "t2")
    job, other = await claim(database), await claim(database)
    assert await database.read(repairs.asked, job) is None
    asked = await database.write(repairs.ask, ANN, job.lease, {"output_id": "o", "refused": [{"uri": "ü"}]})
    assert asked == job
    assert await database.read(repairs.asked, job) == {
        "output_id": "o", "refused": [{"uri": "ü"}], "token": job.token,
    }  # fmt: skip
    assert await database.read(repairs.asked, other) is None

    with pytest.raises(LeaseLost):
        await database.write(repairs.ask, CAT, job.lease, {})
    await database.write(jobs.requeue, job, None, delay=0, counts=None)
    with pytest.raises(LeaseLost):
        await database.write(repairs.ask, ANN, job.lease, {})
    again = await claim(database)
    assert again.job_id == job.job_id
    assert await database.read(repairs.asked, again) is None
