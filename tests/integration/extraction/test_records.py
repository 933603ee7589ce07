"""The record of an extraction: written by the stream, read by its owner, gone with what it quotes."""

from collections.abc import Callable

import grpc

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.memory_types.digest import type_digests
from runekeep_schemas.type_files.registry import Registry
from tests.support.callers import Caller, policy
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, edit, write

TEA = write("preferences", topic="Tea", content="Drinks green tea.")
WRONG = edit("viking://user/memories/preferences/None.md", content=[("a", "b")])


def model_call(answer: str, phase: str = "operations") -> common_pb2.ModelCall:
    return common_pb2.ModelCall(phase=phase, model="m", prompt_digest="ab" * 32, answer=answer, stop_reason="end_turn")


async def record(caller: Caller, task_id: str) -> list[task_service_pb2.ExtractionAttempt]:
    request = task_service_pb2.GetExtractionRecordRequest(task_id=task_id)
    return list((await caller.tasks.GetExtractionRecord(request)).attempts)


async def test_an_attempt_that_failed_and_the_one_that_was_applied(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed(policy=policy(types=["preferences", "events"]))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        calls = [model_call("I would rather not"), model_call("", "repair")]
        failed = pb.JobFailure(failure_class=pb.FAILURE_CLASS_INVALID_OUTPUT, retryable=True)
        failed.status.message = "no JSON"
        await worker.send(fail=pb.JobFail(lease=lease, failure=failed, model_calls=calls))
        await worker.verdict(lease)
        assert [attempt.number for attempt in await record(caller, committed.task_id)] == [1]
        second = await worker.take()
        await worker.deliver(second.lease, TEA, model_calls=[model_call('{"write": ["Ü"]}')])

    first, applied = await record(caller, committed.task_id)
    assert (first.number, applied.number) == (1, 2)
    assert list(first.calls) == calls
    assert (first.failure.message, applied.HasField("failure")) == ("invalid_output: no JSON", False)
    assert list(applied.calls) == [model_call('{"write": ["Ü"]}')]
    assert (first.extractor.engine, applied.extractor.model) == ("scripted", "none")
    assert applied.base_revision == second.base_revision == 0
    known = type_digests(Registry.load())
    assert dict(applied.type_digests) == {name: known[name] for name in ("events", "preferences")}
    assert first.end_time.ToMicroseconds() <= applied.end_time.ToMicroseconds()


async def test_a_repaired_attempt_is_one_attempt(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.deliver(lease, TEA, WRONG, model_calls=[model_call("first")])
        (asked,) = await record(caller, committed.task_id)
        assert asked.failure.message == "rejected_output: 1 operations were refused and sent back for repair"
        await worker.deliver(lease, TEA, model_calls=[model_call("first"), model_call("second", "repair")])
    (mended,) = await record(caller, committed.task_id)
    assert [call.answer for call in mended.calls] == ["first", "second"]
    assert not mended.HasField("failure")


async def test_an_output_that_breaks_the_contract_is_recorded_with_what_is_told_after_it(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        broken = pb.OutputItem(operation=write("preferences", topic="x", abstract="y" * 5000))
        await worker.send(output=pb.OutputChunk(lease=lease, output_id="o", index=0, items=[broken]))
        await worker.verdict(lease)
        (rejected,) = await record(caller, committed.task_id)
        assert rejected.failure.message.startswith("rejected_output: ")
        assert not rejected.calls
        await worker.complete(lease, "o", 1, model_calls=[model_call("too long")])
    (told,) = await record(caller, committed.task_id)
    assert [call.answer for call in told.calls] == ["too long"]
    assert told.failure == rejected.failure


async def test_long_answers_come_back_whole(caller: Caller, channel: grpc.aio.Channel) -> None:
    calls = [model_call(f"{number} ü " * 7_000) for number in range(16)]
    committed = await caller.committed()
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease, TEA, model_calls=calls)
    (attempt,) = await record(caller, committed.task_id)
    assert list(attempt.calls) == calls


async def test_a_task_without_an_ended_attempt_has_an_empty_record(caller: Caller) -> None:
    committed = await caller.committed()
    assert await record(caller, committed.task_id) == []


async def test_raw_answers_can_be_left_out(own_server: Callable[..., ServerProcess]) -> None:
    server = own_server({"RUNEKEEP_RECORD_ANSWERS": "false"})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        committed = await caller.committed()
        async with Worker(channel) as worker:
            await worker.deliver((await worker.take()).lease, TEA, model_calls=[model_call("hello")])
        (attempt,) = await record(caller, committed.task_id)
        assert [(call.answer, call.phase, call.prompt_digest) for call in attempt.calls] == [
            ("", "operations", "ab" * 32)
        ]
    server.stop()


async def test_duplicates_are_told_in_the_result(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease, TEA, duplicates=3)
    assert (await caller.task(committed.task_id)).result.duplicates == 3
