"""Outages of the model server: waited out within the attempt, by one question at a time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pydantic import SecretStr

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.providers.errors import MAX_ASKED, retry_after
from runekeep_extractor.providers.outage import (
    MAX_OUTAGES,
    MAX_UNREACHABLE_SECONDS,
    MAX_WAIT,
    Outage,
    ServerAway,
    Unreachable,
)
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.fixed_job import FixedJob, message
from tests.doubles.messages_api import Gate, MessagesApi, held, overloaded

LONG = 1000.0


class Server:
    """Answers calls by a script; `away` without one. Counts what it is asked."""

    def __init__(self, *script: JobFailed | str) -> None:
        self.asked = 0
        self._script = list(script)
        self.otherwise: JobFailed | str = "answer"

    async def ask(self) -> str:
        self.asked += 1
        said = self._script.pop(0) if self._script else self.otherwise
        if isinstance(said, JobFailed):
            raise said
        return said


def away(retry_after: float | None = None, kind: int = contract.FAILURE_CLASS_MODEL_UNAVAILABLE) -> ServerAway:
    return ServerAway(kind, "status 529", retry_after=retry_after)  # type: ignore[arg-type]  # a number of the enum


def misconfigured() -> JobFailed:
    return JobFailed(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, "status 401")


def an_outage() -> Outage:
    return Outage(first=0.001, max_pause=0.004)


def later(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def failure_of(call: Awaitable[str]) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        await call
    return caught.value


def engine_of(api: MessagesApi, timeout: float) -> ModelEngine:
    settings = AnthropicSettings(api_key=SecretStr("key"), base_url=api.url, model="some-model", timeout=timeout)
    return ModelEngine(settings, max_retries=2)


async def out_of_time(engine: ModelEngine, hangs: Gate, seconds: float) -> None:
    """A job whose time is over so long after its model hangs, as a worker ends it."""

    async def end(time: asyncio.Timeout) -> None:
        assert await asyncio.to_thread(hangs.entered.wait, 60)
        time.reschedule(later(seconds))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as time:
            ending = asyncio.create_task(end(time))
            await engine.extract(FixedJob([message(1, "I drink tea.")]))
    await ending


async def test_a_model_that_hangs_until_the_time_is_over_is_away() -> None:
    """From the first call on: the SDK's own repeats may take longer than there is time."""
    with MessagesApi() as api:
        hangs = api.hangs = api.gate()
        engine = engine_of(api, timeout=0.2)
        assert engine.away == ""
        await out_of_time(engine, hangs, 1.0)
        assert engine.away == "the model server did not answer in time"
        await engine.close()


async def test_a_model_that_hangs_late_in_an_outage_is_away() -> None:
    with MessagesApi() as api:
        api.script(*[overloaded()] * 3)
        hangs = api.gate()
        api.otherwise = held(hangs, overloaded())
        engine = engine_of(api, timeout=20.0)
        await out_of_time(engine, hangs, 0.6)
        assert len(api.calls) > 3 and "down or overloaded" in engine.away
        await engine.close()


async def test_a_model_that_is_still_at_work_when_the_time_is_over_is_not_away() -> None:
    with MessagesApi() as api:
        hangs = api.gate()
        api.otherwise = held(hangs, overloaded())
        engine = engine_of(api, timeout=20.0)
        await out_of_time(engine, hangs, 0.6)
        assert api.calls and engine.away == ""
        await engine.close()


async def test_an_outage_is_waited_out() -> None:
    server = Server(*(away() for _ in range(9)))
    outage = an_outage()

    assert await outage.call(server.ask, later(LONG)) == "answer"
    assert server.asked == 10
    assert outage.reason == ""


async def test_one_asks_while_the_others_wait_and_all_go_on_when_it_is_over() -> None:
    """Twenty calls under way when it begins, four questions of one of them, then the nineteen that waited."""
    server = Server(*(away() for _ in range(20 + 3)))
    outage = Outage(first=0.05, max_pause=0.2)

    answers = await asyncio.gather(*(outage.call(server.ask, later(LONG)) for _ in range(20)))

    assert answers == ["answer"] * 20
    assert server.asked == 20 + 4 + 19


async def test_patience_ends_and_the_last_failure_is_told() -> None:
    server = Server()
    server.otherwise = away(kind=contract.FAILURE_CLASS_RATE_LIMITED)
    outage = an_outage()

    failed = await failure_of(outage.call(server.ask, later(0.5)))

    assert failed.failure_class == contract.FAILURE_CLASS_RATE_LIMITED
    assert server.asked > 2
    assert outage.reason == "status 529"


async def test_a_call_that_cannot_wait_for_the_next_question_asks_nothing() -> None:
    server = Server(away())
    outage = Outage(first=LONG, max_pause=LONG)
    await failure_of(outage.call(server.ask, later(0)))

    failed = await failure_of(outage.call(server.ask, later(LONG / 10)))

    assert server.asked == 1
    assert failed.failure_class == contract.FAILURE_CLASS_MODEL_UNAVAILABLE
    assert failed.retry_after is not None and LONG / 3 < failed.retry_after <= LONG


async def test_a_long_wait_is_left_to_the_queue_and_holds_up_others_for_a_shorter_one() -> None:
    server = Server(away(3600.0))
    outage = an_outage()

    failed = await failure_of(outage.call(server.ask, later(2 * LONG)))
    assert failed.retry_after == 3600.0
    other = await failure_of(outage.call(server.ask, later(MAX_WAIT)))
    assert other.retry_after is not None and MAX_WAIT < other.retry_after <= 60
    assert server.asked == 1


@pytest.mark.parametrize("kind", [contract.FAILURE_CLASS_MODEL_REFUSED, contract.FAILURE_CLASS_INTERNAL])
async def test_an_answer_of_another_kind_ends_the_outage(kind: int) -> None:
    server = Server(away(), JobFailed(kind, "no"))  # type: ignore[arg-type]  # a number of the enum
    outage = an_outage()

    assert (await failure_of(outage.call(server.ask, later(LONG)))).failure_class == kind
    assert (server.asked, outage.reason) == (2, "")


async def test_what_somebody_has_to_mend_is_told_at_once_and_asked_for_by_one_job_at_a_time() -> None:
    server = Server()
    server.otherwise = misconfigured()
    outage = Outage(first=LONG, max_pause=LONG)

    assert (await failure_of(outage.call(server.ask, later(LONG)))).message == "status 401"
    assert (await failure_of(outage.call(server.ask, later(0)))).message == "status 401"
    assert server.asked == 1


async def test_a_call_that_the_server_always_fails_on_does_not_hold_up_the_others() -> None:
    server = Server()
    outage = an_outage()

    async def poison() -> str:
        raise away()

    async def others(until: Callable[[], bool]) -> None:
        while not until():
            await outage.call(server.ask, later(LONG))
            await asyncio.sleep(0)

    bad = asyncio.create_task(outage.call(poison, later(LONG)))
    await others(bad.done)

    assert isinstance(bad.exception(), ServerAway)
    assert server.asked >= MAX_OUTAGES - 1
    assert await outage.call(server.ask, later(LONG)) == "answer"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("7", 7.0), ("-3", 0.0), ("inf", MAX_ASKED), ("1e12", MAX_ASKED), ("nan", None), ("soon", None)],
)
def test_what_a_server_asks_to_wait_is_a_time(asked: str, seconds: float | None) -> None:
    """Whatever stands there, the failure can be told to the server, which waits so long."""
    assert retry_after({"retry-after": asked}) == seconds


async def test_a_server_that_cannot_be_reached_is_asked_again_each_second_and_one_that_is_overloaded_is_not() -> None:
    """Checks the pauses that are chosen. The requests themselves take no time here."""
    for failed, longest in ((unreachable(), MAX_UNREACHABLE_SECONDS), (away(), 16.0)):
        outage = Outage(first=1.0, max_pause=16.0)
        pauses = []
        for _ in range(12):
            outage._lasts(failed, probed=True)
            pauses.append(outage._pause)
        assert max(pauses) == longest


def unreachable() -> Unreachable:
    return Unreachable(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, "the model server cannot be reached")


async def test_a_refused_connection_is_a_server_that_cannot_be_reached() -> None:
    with MessagesApi() as api:
        engine = engine_of(api, timeout=20.0)
        api.down()
        job = FixedJob([message(1, "I drink tea.")])
        job.assignment.time_budget.FromMilliseconds(1)
        with pytest.raises(Unreachable):
            await engine.extract(job)
        await engine.close()
