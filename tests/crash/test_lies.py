"""A proxy in front of a real server breaks each invariant of the checker in the answers, and the checker reports it.

One honest run is enough for all lies: they falsify what is read after it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runekeep.v1 import task_service_pb2 as task_pb
from tests.crash.aftermath import drained
from tests.crash.campaign import SPACES, clients_of, loaded, look_at_all
from tests.crash.checker import check
from tests.crash.clients import Doors
from tests.crash.faults import up
from tests.crash.fleet import OnSqlite, running
from tests.crash.history import HEADING, LEDGERS, History, Space, ids_of, ledger_text
from tests.crash.lying_proxy import Lie, changing, lying_proxy, mixing_in, turned, with_last_twice, without_last
from tests.crash.violations import Violation, Wrong
from tests.crash.workload import Load
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = SPACES[0]
COMMITS = 3
"""Least number of commits of each user."""
LOOKING_SECONDS = 0.2
MIN_SEARCHES = 10


@dataclass(frozen=True, slots=True)
class Honest:
    """A server that serves, and what clients did and saw there."""

    address: str
    history: History


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def honest(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Honest]:
    directory: Path = tmp_path_factory.mktemp("honest")
    history = History()
    async with running(OnSqlite(), directory, history) as fleet:
        await asyncio.gather(*map(up, fleet.extractors))
        async with loaded(fleet.ports, history, "honest") as loads:
            await asyncio.to_thread(until, lambda: min(len(ids_in(history, space)) for space in SPACES) >= COMMITS)
            await asyncio.gather(*(load.stop() for load in loads))
        history.sights.clear()
        history.readings.clear()
        async with clients_of(fleet.ports, history, "honest") as lookers:
            await drained(lookers)
        yield Honest(f"127.0.0.1:{fleet.ports[0]}", history)


def of_user(history: History, space: Space) -> History:
    """Returns a separate history of what one user did."""
    return History(
        commits=[commit for commit in history.commits if commit.space == space],
        turns=[turn for turn in history.turns if turn.space == space],
        reconciled={space: set(history.reconciled.get(space, ()))},
        added={key: list(ids) for key, ids in history.added.items() if key[0] == space},
        contents=history.contents,
        faults=list(history.faults),
    )


def ids_in(history: History, space: Space) -> list[str]:
    return [commit.id for commit in history.commits if commit.space == space]


async def seen_through(honest: Honest, lies: dict[str, Lie]) -> list[Violation]:
    """Returns what the checker reports of one user's data from the honest run, read through a proxy that lies."""
    history = of_user(honest.history, ANN)
    async with lying_proxy(honest.address, lies) as port:
        doors = Doors([port])
        load = Load(doors, ANN, "a", history, "lies")
        load.look_on(ids_in(history, ANN))
        await asyncio.sleep(LOOKING_SECONDS)
        # A slow machine needs longer. Not every search meets a lie.
        await asyncio.to_thread(until, lambda: len(history.sights) >= MIN_SEARCHES and history.readings)
        await load.end()
        await doors.close()
        async with clients_of([port], history, "lies") as lookers:
            await look_at_all(lookers, history)
    assert history.sights and history.readings
    return check(history)


def in_memories(change: Callable[[Any], None]) -> Lie:
    """Changes each memory in the answer to a search, or the memory that was read."""

    def of_answer(answer: Any) -> None:
        for memory in [item.memory for item in answer.results] if hasattr(answer, "results") else [answer.memory]:
            change(memory)

    return changing(of_answer)


def in_ledger(change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Lie:
    """Changes the ids of a ledger that is read."""

    def of_memory(memory: Any) -> None:
        content = memory.fields["content"]
        # A search that asks for no more shows only the beginning.
        if memory.memory_type == LEDGERS[1] and content.string_value.startswith(HEADING):
            content.string_value = ledger_text(change(ids_of(content.string_value)))

    return in_memories(of_memory)


def without_a_mark(answer: Any) -> None:
    """Answers a search with half of a commit."""
    for number, item in enumerate(answer.results):
        if item.memory.memory_type == "mark":
            del answer.results[number]
            return


def of_the_last(items: str, change: Callable[[Any], None]) -> Lie:
    return changing(lambda answer: [change(one) for one in list(getattr(answer, items))[-1:]])


def stuck(task: Any) -> None:
    task.state = task_pb.TASK_STATE_RUNNING


def failed(task: Any) -> None:
    task.state = task_pb.TASK_STATE_FAILED


def another_task(answer: Any) -> None:
    for task in list(answer.tasks)[:1]:
        answer.tasks.add().CopyFrom(task)
        answer.tasks[-1].task_id = "of-nobody"


def another_text(message: Any) -> None:
    message.parts[0].text.text += "!"


def a_flipped_bit(answer: Any) -> None:
    """Changes one letter of the output, as if a damaged blob were served."""
    answer.text = answer.text.replace("output ", "outpuu ", 1)


def another_before(answer: Any) -> None:
    for update in answer.diff.updates:
        update.before += "!"


def heavier(answer: Any) -> None:
    for bucket in answer.buckets:
        for part in bucket.timeline:
            for fact in part.facts:
                fact.weight += 0.1


def behind(answer: Any) -> None:
    answer.latest_revision += 1


def backwards(answer: Any) -> None:
    answer.revision -= 1


def pending(answer: Any) -> None:
    answer.pending_passages = 1


def no_passages(answer: Any) -> None:
    for number, item in reversed(list(enumerate(answer.results))):
        if item.HasField("passage"):
            del answer.results[number]


async def test_an_honest_server_is_believed(honest: Honest) -> None:
    assert await seen_through(honest, {}) == []


@pytest.mark.parametrize(
    ("method", "lie", "wrong"),
    [
        pytest.param("ListMessages", without_last("messages"), Wrong.LOST, id="a-message-lost"),
        pytest.param("ListMessages", with_last_twice("messages"), Wrong.DOUBLED, id="a-message-doubled"),
        pytest.param("ListMessages", turned("messages"), Wrong.DISORDER, id="messages-out-of-order"),
        pytest.param("ListMessages", of_the_last("messages", another_text), Wrong.DAMAGED, id="a-message-changed"),
        pytest.param("ReadDocument", changing(a_flipped_bit), Wrong.DAMAGED, id="a-damaged-blob-served"),
        pytest.param("FindMemories", changing(without_a_mark), Wrong.HALF_SEEN, id="half-a-commit-found"),
        pytest.param("FindMemories", in_ledger(lambda ids: ids[:-1]), Wrong.HALF_SEEN, id="ledgers-that-differ"),
        pytest.param("FindMemories", changing(backwards), Wrong.HALF_SEEN, id="a-search-of-another-revision"),
        pytest.param("FindMemories", mixing_in("bob", "results"), Wrong.LEAKED, id="another-users-memories-found"),
        pytest.param("FindMemories", changing(behind), Wrong.LEFT_OVER, id="a-watermark-behind"),
        pytest.param("FindMemories", changing(pending), Wrong.LEFT_OVER, id="passages-pending"),
        pytest.param("FindMemories", changing(no_passages), Wrong.FAULT, id="passages-not-found"),
        pytest.param("GetMemory", in_ledger(lambda ids: (*ids, ids[0])), Wrong.DOUBLED, id="an-operation-doubled"),
        pytest.param("GetMemory", in_ledger(lambda ids: ids[1:]), Wrong.LOST, id="an-operation-lost"),
        pytest.param("GetMemory", in_ledger(lambda ids: ids[:-1]), Wrong.HALF_SEEN, id="a-reading-of-half-a-commit"),
        pytest.param("GetMemory", in_ledger(lambda ids: ids[::-1]), Wrong.DISORDER, id="operations-out-of-order"),
        pytest.param("ListDirectory", with_last_twice("entries"), Wrong.DOUBLED, id="a-memory-doubled"),
        pytest.param("ListDirectory", without_last("entries"), Wrong.LOST, id="a-memory-lost"),
        pytest.param("ListMemoryVersions", without_last("memories"), Wrong.LOST, id="a-version-lost"),
        pytest.param("GetMemoryDiff", changing(another_before), Wrong.LOST, id="a-diff-on-another-base"),
        pytest.param("ListTasks", of_the_last("tasks", stuck), Wrong.NOT_COMPLETED, id="a-task-stuck"),
        pytest.param("ListTasks", of_the_last("tasks", failed), Wrong.NOT_COMPLETED, id="a-task-failed"),
        pytest.param("ListTasks", without_last("tasks"), Wrong.NOT_COMPLETED, id="a-task-gone"),
        pytest.param("ListTasks", changing(another_task), Wrong.DOUBLED, id="a-task-of-nobody"),
        pytest.param("ListTurns", without_last("turns"), Wrong.LOST, id="a-fingerprint-lost"),
        pytest.param("ListTurnArtifacts", with_last_twice("artifacts"), Wrong.DOUBLED, id="a-fingerprint-doubled"),
        pytest.param("ListMemoryBuckets", changing(heavier), Wrong.DOUBLED, id="a-turn-folded-in-twice"),
    ],
)
async def test_a_lie_is_reported(honest: Honest, method: str, lie: Lie, wrong: Wrong) -> None:
    found = await seen_through(honest, {method: lie})

    assert wrong in {violation.wrong for violation in found}, found
