"""A minute without a model, under load, with real processes: nothing fails, nothing is lost, and then all is done."""

import asyncio
import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest

from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from tests.acceptance.processes import Processes
from tests.doubles.messages_api import MessagesApi, Request, answer, overloaded, rate_limited
from tests.support.callers import Caller, said
from tests.support.extractors import SUMMARY

USERS = 5
PHASE_SECONDS = 15.0
"""Four of them: refused connections, overload, a limited rate, silence."""
PAUSE_SECONDS = 2.0
"""Between two commits of a user."""
LONG_WAIT = 22.0
"""Asked for by the limited rate; more than an attempt waits, so such jobs go back to the queue."""
DONE_SECONDS = 150.0
OPEN = (task_service_pb2.TASK_STATE_PENDING, task_service_pb2.TASK_STATE_RUNNING)


def remembered(request: Request) -> dict[str, Any]:
    """What a model makes of it: a preference for each thing that was to be remembered, by the message that says so."""
    wishes = re.findall(r"#(\d+) user[^#]*remember:(wish-\w+-\d+)", request.prompt_text)
    return {
        "reasoning": "It was asked for.",
        "write_operations": [
            {
                "memory_type": "preferences",
                "fields": [{"name": "topic", "value": name}, {"name": "content", "value": f"Wants {name}."}],
                "peer_id": "",
                "ranges": [{"start": int(sequence), "end": int(sequence)}],
                "reason": "said so",
                "abstract": "",
                "overview": "",
            }
            for sequence, name in wishes
        ],
        "edit_operations": [],
        "delete_operations": [],
        "summary": SUMMARY,
    }


@dataclass
class Talker:
    """A user who goes on talking whatever becomes of the model."""

    caller: Caller
    session: str
    wishes: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while something is said that is not in `wishes` yet."""

    async def commit(self) -> None:
        wish = f"wish-{self.caller.user.replace('-', '')}-{len(self.wishes)}"
        async with self.turn:
            await self.caller.add(self.session, said(f"remember:{wish}"))
            committed = await self.caller.commit(self.session)
            self.wishes.append(wish)
            self.tasks.append(committed.task_id)

    async def talk(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self.commit()
            try:
                async with asyncio.timeout(PAUSE_SECONDS):
                    await over.wait()
            except TimeoutError:
                continue

    async def found(self) -> list[Any]:
        return [await self.caller.task(task) for task in self.tasks]

    async def completed(self) -> None:
        for task in self.tasks:
            watch = self.caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task), timeout=DONE_SECONDS)
            *_, last = [update async for update in watch]
            assert last.ended.state == task_service_pb2.TASK_STATE_COMPLETED, last

    async def check_context(self) -> None:
        """Every message is there, archived or not, and in order."""
        request = session_service_pb2.ListMessagesRequest(
            session=self.session, scope=session_service_pb2.MESSAGE_SCOPE_ALL, page_size=200
        )
        async with self.turn:
            messages = (await self.caller.sessions.ListMessages(request)).messages
            assert [one.parts[0].text.text for one in messages] == [f"remember:{wish}" for wish in self.wishes]

    async def check_memories(self) -> None:
        """Exactly what was said, each once: one memory, of one version, and one revision a commit."""
        request = memory_service_pb2.ListDirectoryRequest(
            uri=self.caller.uri("memories/preferences"), node_limit=10_000, depth=1
        )
        entries = (await self.caller.memories.ListDirectory(request)).entries
        uris = [self.caller.uri(f"memories/preferences/{wish}.md") for wish in self.wishes]
        assert sorted(entry.uri for entry in entries) == sorted(uris)
        for uri in uris:
            assert (await self.caller.memory(uri)).version == 1
        results = [task.result for task in await self.found()]
        assert [result.revision for result in results] == list(range(1, len(self.tasks) + 1))

    async def archive_states(self) -> list[int]:
        request = session_service_pb2.ListArchivesRequest(session=self.session, page_size=200)
        archives = (await self.caller.sessions.ListArchives(request)).archives
        return [archive.state for archive in sorted(archives, key=lambda one: one.index)]


async def outage(api: MessagesApi) -> None:
    silent = api.gate()
    api.down()
    await asyncio.sleep(PHASE_SECONDS)
    api.otherwise = overloaded()
    api.up()
    await asyncio.sleep(PHASE_SECONDS)
    api.otherwise = rate_limited(retry_after=LONG_WAIT)
    await asyncio.sleep(PHASE_SECONDS)
    api.otherwise, api.hangs = overloaded(), silent
    await asyncio.sleep(PHASE_SECONDS)
    # Whoever still waits for an answer gets one, and it is no good one.
    silent.release.set()


@pytest.mark.long
async def test_a_minute_without_a_model_fails_no_commit(fleet: Processes) -> None:
    with MessagesApi() as api:
        api.otherwise = answer(remembered)
        # One counted attempt would be the last.
        server = fleet.server(
            RUNEKEEP_EMBEDDER="none",
            RUNEKEEP_MAX_ATTEMPTS="1",
            RUNEKEEP_MAX_LOST_LEASES="1",
            RUNEKEEP_BACKOFF_FIRST_SECONDS="2",
            RUNEKEEP_BACKOFF_MAX_SECONDS="300",
        )
        model = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "any", "RUNEKEEP_EXTRACTOR_MODEL_TIMEOUT": "3"}
        for worker in ("one", "two"):
            fleet.extractor(worker, **model)
        async with grpc.aio.insecure_channel(fleet.address) as channel:
            callers = [Caller(channel, f"user-{number}", f"account-{number % 2}") for number in range(USERS)]
            talkers = [Talker(caller, await caller.session()) for caller in callers]
            await asyncio.gather(*(talker.commit() for talker in talkers))
            async with asyncio.timeout(DONE_SECONDS):
                await asyncio.gather(*(talker.completed() for talker in talkers))
            before = len(api.requests)

            over = asyncio.Event()
            talking = [asyncio.create_task(talker.talk(over)) for talker in talkers]
            await outage(api)

            # Still away, and everybody could go on talking.
            for talk in talking:
                assert not talk.done(), talk.exception()
            tasks = list(itertools.chain(*[await talker.found() for talker in talkers]))
            waiting = [task for task in tasks if task.state != task_service_pb2.TASK_STATE_COMPLETED]
            assert len(tasks) == len(waiting) + USERS
            assert not [task.error for task in waiting if task.state not in OPEN]
            told = [f"{task.error.message} {task.progress.message}" for task in waiting]
            assert any("rate_limited: the model server limits the rate: status 429" in text for text in told), told
            assert any("waiting for the model" in text and "the model server" in text for text in told), told
            # Two processes that ask in turns, three times each with the SDK's own repeats; not each job for itself.
            assert len(api.requests) - before < 60
            for talker in talkers:
                await talker.check_context()
                done, *pending = await talker.archive_states()
                assert done == session_service_pb2.ARCHIVE_STATE_DONE
                assert set(pending) == {session_service_pb2.ARCHIVE_STATE_PENDING}

            api.otherwise = answer(remembered)
            over.set()
            await asyncio.gather(*talking)
            async with asyncio.timeout(DONE_SECONDS):
                await asyncio.gather(*(talker.completed() for talker in talkers))
            for talker in talkers:
                await talker.check_context()
                await talker.check_memories()
                assert set(await talker.archive_states()) == {session_service_pb2.ARCHIVE_STATE_DONE}
                # What no worker had was not touched, and what one had was kept, but for what had to wait for long.
                attempts = [task.attempt for task in await talker.found()]
                assert max(attempts) <= 3 and sum(attempts) - len(attempts) <= 8, attempts
    server.stop()
