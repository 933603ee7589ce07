"""What a task says when it is over: one outcome for each way to end, what was left out and why, and what it cost."""

import json
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import CALLED, Caller, lasting, policy, said
from tests.support.changes import put, written
from tests.support.worker import Worker, delete, edit, write

SERVER_SETTINGS = {
    "RUNEKEEP_MAX_ATTEMPTS": "2",
    "RUNEKEEP_MAX_CONFLICTS": "2",
    "RUNEKEEP_BACKOFF_FIRST_SECONDS": "0.05",
    "RUNEKEEP_BACKOFF_MAX_SECONDS": "0.1",
}

UNPARSEABLE = task_service_pb2.COMMIT_OUTCOME_UNPARSEABLE
CONFLICT = task_service_pb2.COMMIT_OUTCOME_CONFLICT
OUT_OF_BUDGET = task_service_pb2.COMMIT_OUTCOME_OUT_OF_BUDGET
GIVEN_UP = task_service_pb2.COMMIT_OUTCOME_GIVEN_UP
APPLIED = task_service_pb2.COMMIT_OUTCOME_APPLIED
PARTLY_REJECTED = task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED
NOTHING_APPLIED = task_service_pb2.COMMIT_OUTCOME_NOTHING_APPLIED

TEA = "memories/preferences/Tea.md"


def note(topic: str = "Tea", content: str = "Likes green tea.", **place: Any) -> pb.MemoryOperation:
    return write("preferences", topic=topic, content=content, **place)


def used(phase: str, *, calls: int = 1, tokens: int = 10, model: str = "m") -> common_pb2.TokenUsage:
    return common_pb2.TokenUsage(model=model, phase=phase, calls=calls, input_tokens=tokens, output_tokens=tokens // 2)


def spent(result: task_service_pb2.CommitResult) -> dict[tuple[str, str], tuple[int, int, int]]:
    return {(one.model, one.phase): (one.calls, one.input_tokens, one.output_tokens) for one in result.usage}


def counts(result: task_service_pb2.CommitResult) -> dict[str, dict[str, int]]:
    """Counts by type; what is 0 is left out."""
    return {
        name: {field.name: count for field, count in of_type.ListFields()}
        for name, of_type in result.counts_by_type.items()
    }


async def retried(caller: Caller, task_id: str) -> Any:
    return (await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=task_id))).task


@pytest.mark.parametrize(
    ("failure_class", "attempts", "outcome"),
    [
        (pb.FAILURE_CLASS_INVALID_OUTPUT, 2, UNPARSEABLE),
        (pb.FAILURE_CLASS_REJECTED_OUTPUT, 2, UNPARSEABLE),
        (pb.FAILURE_CLASS_CONFLICT, 2, CONFLICT),
        (pb.FAILURE_CLASS_TIME_BUDGET, 2, OUT_OF_BUDGET),
        (pb.FAILURE_CLASS_OUT_OF_BUDGET, 1, OUT_OF_BUDGET),
        (pb.FAILURE_CLASS_MODEL_REFUSED, 1, GIVEN_UP),
        (pb.FAILURE_CLASS_INPUT_TOO_LARGE, 1, GIVEN_UP),
        (pb.FAILURE_CLASS_INPUT_INVALID, 1, GIVEN_UP),
        (pb.FAILURE_CLASS_UNSUPPORTED, 2, GIVEN_UP),
        (pb.FAILURE_CLASS_INTERNAL, 2, GIVEN_UP),
    ],
)
async def test_a_failed_task_tells_its_outcome_and_what_all_attempts_spent(
    caller: Caller, channel: grpc.aio.Channel, failure_class: int, attempts: int, outcome: int
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        for attempt in range(1, attempts + 1):
            job = await worker.take()
            assert not (await caller.task(committed.task_id)).HasField("result")
            usage = [used("reasoning", tokens=10 * attempt), used(f"only {attempt}")]
            verdict = await worker.fail(job.lease, failure_class, usage=usage)
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED
    (*_, last) = await caller.watch(committed.task_id)
    task = last.ended
    assert lasting(task) == lasting(await caller.task(committed.task_id))
    assert (task.state, task.result.outcome) == (task_service_pb2.TASK_STATE_FAILED, outcome)
    name = pb.FailureClass.Name(failure_class).removeprefix("FAILURE_CLASS_").lower()  # type: ignore[arg-type]  # a number of the enum
    assert task.error.message.startswith(f"{name}: ")
    total = 10 * sum(range(1, attempts + 1))
    assert spent(task.result) == {
        ("m", "reasoning"): (attempts, total, total // 2),
        **{("m", f"only {attempt}"): (1, 10, 5) for attempt in range(1, attempts + 1)},
    }


async def test_a_cancelled_task_has_no_result(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        job = await worker.take()
        await worker.fail(job.lease, pb.FAILURE_CLASS_RATE_LIMITED, usage=[used("reasoning")])
        await caller.cancel_open()
    task = await caller.task(committed.task_id)
    assert task.state == task_service_pb2.TASK_STATE_CANCELLED and not task.HasField("result")


async def test_a_retry_clears_the_result_and_goes_on_adding_up_the_cost(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.fail(lease, pb.FAILURE_CLASS_MODEL_REFUSED, usage=[used("operations")])
        assert (await caller.task(committed.task_id)).result.outcome == GIVEN_UP
        assert not (await retried(caller, committed.task_id)).HasField("result")
        lease = (await worker.take()).lease
        await worker.deliver(lease, note(), usage=[used("operations", tokens=4), used("operations", model="other")])
    task = await caller.task(committed.task_id)
    assert task.result.outcome == APPLIED and not task.HasField("error")
    assert spent(task.result) == {("m", "operations"): (2, 14, 7), ("other", "operations"): (1, 10, 5)}


async def test_operations_are_counted_by_type(caller: Caller, channel: grpc.aio.Channel) -> None:
    uri = caller.uri("memories/preferences/Cake.md")
    first = await caller.committed()
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease, note(), note("Cake"), note("Jam"))
        whole = (await caller.task(first.task_id)).result
        assert counts(whole) == {"preferences": {"adds": 3}}
        assert sum(one["adds"] for one in counts(whole).values()) == whole.total_adds
        assert dict(whole.memories_extracted) == {"preferences": 3}

        second = await caller.committed(
            said("a"),
            said("b", peer="anna"),
            CALLED,
            policy=policy(peer=True, types=["preferences", "tools", "entities", "events"]),
        )
        lease = (await worker.take()).lease
        operations = [
            note(),
            note("Jam", "Now likes jam."),
            delete(uri),
            # To the user, who knows it, and to anna, who does not: it changed something.
            note(ranges=[(1, 2)]),
            write("tools", tool_name="grep", total_calls=7),
            write("tools", tool_name="ls", total_calls=1),
            write("cases", case_name="x", problem="p", solution="s"),
            write("events", event_name="e", event_time="2026-01-01", content="c", peer="bert"),
            write("entities", colour="green"),
            edit(caller.uri("memories/entities/none.md"), content="x"),
            edit("viking://user/somebody-else/memories/profile.md", content="x"),
        ]
        verdict = await worker.deliver(lease, *operations)
        assert verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        await worker.deliver(lease, *operations)
    result = (await caller.task(second.task_id)).result
    assert counts(result) == {
        "preferences": {"adds": 1, "updates": 1, "deletes": 1, "unchanged": 1},
        "tools": {"adds": 1, "skipped": 1},
        "cases": {"skipped": 1},
        "events": {"skipped": 1},
        "entities": {"rejected": 1},
    }
    assert (result.total_adds, result.total_updates, result.total_deletes, result.unchanged) == (2, 1, 1, 1)
    assert [(one.reason, one.memory_type, one.operation_index) for one in result.skipped] == [
        ("not_in_records", "tools", 5), ("type_filtered", "cases", 6), ("peer_not_in_batch", "events", 7),
    ]  # fmt: skip
    # Of what is nowhere the type is not known, so that it stands in the list alone.
    assert [(one.reason, one.memory_type, one.operation_index) for one in result.rejected] == [
        ("field_invalid", "entities", 8), ("not_found", "", 9), ("uri_invalid", "", 10),
    ]  # fmt: skip
    assert all(one.message for one in (*result.skipped, *result.rejected))


async def closed(caller: Caller, archive_uri: str) -> dict[str, Any]:
    """The diff of an archive that has its summary and `.done`."""
    assert "Talk of tea." in (await caller.read(f"{archive_uri}/.abstract.md")).text
    names = {entry.name for entry in (await caller.listing(archive_uri, show_hidden=True)).entries}
    assert {".done", ".overview.md", "memory_diff.json"} <= names
    diff: dict[str, Any] = json.loads((await caller.read(f"{archive_uri}/memory_diff.json")).text)
    return diff


PROFILE = "# User profile\n- Name: Ana\n- Lives in Oslo\n- Works as a surveyor\n- Has two dogs, Rex and Tom"


@pytest.mark.parametrize(
    ("path", "change", "reason"),
    [
        (TEA, [("oolong", "x")], "patch_not_applicable"),
        ("memories/profile.md", "Ana.", "field_invalid"),
        ("memories/preferences/None.md", "x", "not_found"),
    ],
)
async def test_a_refused_operation_costs_the_commit_nothing_but_itself(
    caller: Caller, channel: grpc.aio.Channel, path: str, change: Any, reason: str
) -> None:
    """It is the only one, and stays wrong after the repair. There is no second attempt, and all else is kept."""
    await caller.committed()
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease, note(), write("profile", content=PROFILE))
        committed = await caller.committed()
        lease = (await worker.take()).lease
        wrong = edit(caller.uri(path), content=change)
        verdict = await worker.deliver(lease, wrong, summary="Talk of tea.", usage=[used("operations")])
        assert verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        usage = [used("operations"), used("repair")]
        verdict = await worker.deliver(lease, wrong, summary="Talk of tea.", usage=usage)
        assert (verdict.outcome, verdict.commit_outcome) == (pb.JOB_OUTCOME_APPLIED, NOTHING_APPLIED)
        assert [one.reason for one in verdict.rejected] == [reason]
    task = await caller.task(committed.task_id)
    assert (task.state, task.attempt) == (task_service_pb2.TASK_STATE_COMPLETED, 1)
    assert task.result.outcome == NOTHING_APPLIED and list(task.result.rejected) == list(verdict.rejected)
    assert spent(task.result) == {("m", "operations"): (1, 10, 5), ("m", "repair"): (1, 10, 5)}
    diff = await closed(caller, committed.archive_uri)
    assert diff["summary"] == {"total_adds": 0, "total_updates": 0, "total_deletes": 0}
    assert (await caller.memory(caller.uri("memories/profile.md"))).content == PROFILE


async def test_what_is_refused_again_is_left_out_and_the_rest_is_applied(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        operations = [edit(caller.uri("memories/preferences/None.md"), content="x"), note()]
        for outcome in (pb.JOB_OUTCOME_NEEDS_REPAIR, pb.JOB_OUTCOME_APPLIED):
            verdict = await worker.deliver(lease, *operations, summary="Talk of tea.")
            assert verdict.outcome == outcome
        assert verdict.commit_outcome == PARTLY_REJECTED
    diff = await closed(caller, committed.archive_uri)
    assert [one["uri"] for one in diff["operations"]["adds"]] == [caller.uri(TEA)]


async def test_an_output_of_which_nothing_could_be_read_is_not_nothing_to_extract(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        for _ in range(2):
            verdict = await worker.deliver((await worker.take()).lease, dropped_items=3)
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED
        task = await caller.task(committed.task_id)
        assert (task.result.outcome, task.result.dropped_items) == (UNPARSEABLE, 3)
        assert "3 were dropped" in task.error.message
        assert (await caller.listing("viking://user/memories")).entries == []

        await retried(caller, committed.task_id)
        await worker.deliver((await worker.take()).lease, summary="Talk of tea.", dropped_items=3)
    task = await caller.task(committed.task_id)
    assert (task.result.outcome, task.result.dropped_items) == (NOTHING_APPLIED, 3), "the summary is worth keeping"
    await closed(caller, committed.archive_uri)


async def test_a_commit_of_which_everything_was_skipped_is_not_called_applied(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed(policy=policy(types=["tools", "entities"]))
    async with Worker(channel) as worker:
        stranger = write("entities", entity_name="Rex", content="A dog.", peer="dora")
        verdict = await worker.deliver((await worker.take()).lease, note(), stranger, summary="Talk of tea.")
        assert (verdict.outcome, verdict.commit_outcome) == (pb.JOB_OUTCOME_APPLIED, NOTHING_APPLIED)
        assert [(one.reason, one.operation_index) for one in verdict.skipped] == [
            ("type_filtered", 0), ("peer_not_in_batch", 1),
        ]  # fmt: skip
    task = await caller.task(committed.task_id)
    assert (task.state, task.attempt, task.result.outcome) == (
        task_service_pb2.TASK_STATE_COMPLETED, 1, NOTHING_APPLIED,
    )  # fmt: skip
    assert list(task.result.skipped) == list(verdict.skipped) and not task.result.rejected
    assert counts(task.result) == {"preferences": {"skipped": 1}, "entities": {"skipped": 1}}
    await closed(caller, committed.archive_uri)


async def test_one_operation_that_says_nothing_new_beside_a_skipped_one_is_applied(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await written(caller, put("preferences", topic="Tea", content="Likes green tea."))
    committed = await caller.committed(policy=policy(types=["preferences"]))
    async with Worker(channel) as worker:
        skipped = write("entities", entity_name="Rex", content="A dog.")
        verdict = await worker.deliver((await worker.take()).lease, note(), skipped)
        assert verdict.commit_outcome == APPLIED
    result = (await caller.task(committed.task_id)).result
    assert (result.outcome, result.unchanged, len(result.skipped)) == (APPLIED, 1, 1)


async def test_what_a_repair_drops_is_named_with_the_reason_of_its_refusal(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    missing, unnamed = edit(caller.uri(TEA), content="x"), write("preferences", content="x")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, missing, note("Jam"), unnamed, note("", "x"), note("Cake"))
        assert [one.reason for one in verdict.refused] == ["not_found", "field_invalid", "field_invalid"]
        # The first is mended by another operation on its memory, one of the others by a name.
        mended = [note(), note("Jam"), note("Named", "x"), note("Cake")]
        assert (await worker.deliver(lease, *mended)).outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert (result.outcome, result.total_adds) == (PARTLY_REJECTED, 4)
    (left_out,) = result.rejected
    assert (left_out.reason, left_out.memory_type) == ("field_invalid", "preferences")
    assert left_out.operation_index == -1, "the output that was applied does not have it"
    assert ", not mended: " in left_out.message


async def test_a_repair_that_leaves_out_all_there_was_ends_the_commit(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """Nothing wrong is left in it: the summary stands, and what was left out is named. Another attempt would only cost
    the same once more.
    """
    committed = await caller.committed()
    wrong = [edit(caller.uri(TEA), content="x"), edit("viking://user/somebody-else/memories/profile.md", content="x")]
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.deliver(lease, *wrong)).outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        assert (await worker.deliver(lease, summary="Talk of tea.")).outcome == pb.JOB_OUTCOME_APPLIED
    task = await caller.task(committed.task_id)
    assert (task.state, task.attempt) == (task_service_pb2.TASK_STATE_COMPLETED, 1)
    assert task.result.outcome == NOTHING_APPLIED and not dict(task.result.memories_extracted)
    assert [(one.reason, one.uri, one.operation_index) for one in task.result.rejected] == [
        ("not_found", caller.uri(TEA), -1),
        ("uri_invalid", "", -1),
    ]
    assert "Talk of tea." in (await caller.read(f"{committed.archive_uri}/.abstract.md")).text


async def test_what_a_repair_leaves_out_while_others_go_on_is_named_once(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """Without a URI, beside a right operation on the same memory, and with as many operations as before."""
    committed = await caller.committed()
    nowhere = edit("viking://user/somebody-else/memories/profile.md", content="x")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, note(), nowhere, edit(caller.uri(TEA), content=[("oolong", "y")]))
        assert [one.operation_index for one in verdict.refused] == [1, 2]
        others = [write("entities", entity_name=name, content="y") for name in ("Rex", "Tom")]
        assert (await worker.deliver(lease, note(), *others)).outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert result.outcome == PARTLY_REJECTED
    assert [(one.reason, one.operation_index) for one in result.rejected] == [
        ("uri_invalid", -1),
        ("patch_not_applicable", -1),
    ]
    assert [one.message.split(",")[0] for one in result.rejected] == [
        "operation 1 of the first output",
        "operation 2 of the first output",
    ]


async def test_a_right_operation_that_a_repair_words_anew_stands_for_no_refused_one(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    party: dict[str, Any] = {"event_name": "Tea party", "event_time": "2026-01-01"}
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        first = [write("events", content="Green tea.", **party), write("events", content="A walk.")]
        assert [one.operation_index for one in (await worker.deliver(lease, *first)).refused] == [1]
        verdict = await worker.deliver(lease, write("events", content="Mostly green tea.", **party))
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert (result.outcome, result.memories_extracted["events"]) == (PARTLY_REJECTED, 1)
    assert [(one.reason, one.memory_type) for one in result.rejected] == [("field_invalid", "events")]


async def test_a_right_operation_that_a_repair_drops_is_named(caller: Caller, channel: grpc.aio.Channel) -> None:
    """It was asked for the whole output once more: what it forgets of that is lost, and not in silence."""
    committed = await caller.committed(policy=policy(types=["preferences"]))
    party = write("events", event_name="Tea party", event_time="2026-01-01", content="Of no type that is wanted.")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        missing = edit(caller.uri("memories/preferences/Jam.md"), content="x")
        verdict = await worker.deliver(lease, note(), party, missing, note("Cake"))
        assert [one.operation_index for one in verdict.refused] == [2]
        assert (await worker.deliver(lease, note("Cake"), note("Jam"))).outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert result.outcome == PARTLY_REJECTED
    assert counts(result)["preferences"] == {"adds": 2, "rejected": 1}
    (lost,) = result.rejected
    assert (lost.reason, lost.memory_type, lost.uri, lost.operation_index) == (
        "left_out_by_repair", "preferences", caller.uri(TEA), -1,
    )  # fmt: skip
    assert "operation 0 of the first output" in lost.message


async def test_the_answer_to_a_refused_output_is_given_again(caller: Caller, channel: grpc.aio.Channel) -> None:
    """The verdict is lost with its stream: the same output is no second one, and its cost is not counted twice."""
    committed = await caller.committed()
    missing = edit(caller.uri(TEA), content="x")
    output: dict[str, Any] = {"output_id": "first", "usage": [used("operations")]}
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        before = await worker.deliver(lease, missing, note("Jam"), **output)
    async with Worker(channel, resume=[lease]) as worker:
        again = await worker.deliver(lease, missing, note("Jam"), **output)
        assert (again.outcome, again.refused) == (pb.JOB_OUTCOME_NEEDS_REPAIR, before.refused)
        usage = [used("operations"), used("repair")]
        verdict = await worker.deliver(lease, missing, note("Jam"), usage=usage)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert result.outcome == PARTLY_REJECTED
    assert spent(result) == {("m", "operations"): (1, 10, 5), ("m", "repair"): (1, 10, 5)}


async def test_what_an_output_had_cost_is_kept_when_its_repair_never_comes(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.deliver(lease, edit(caller.uri(TEA), content="x"), usage=[used("operations")])
        await worker.release(lease)
        lease = (await worker.take()).lease
        await worker.deliver(lease, note(), usage=[used("operations")])
    assert spent((await caller.task(committed.task_id)).result) == {("m", "operations"): (2, 20, 10)}


async def test_what_an_output_cost_that_breaks_the_contract_is_told_after_it(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    broken = pb.OutputItem(operation=pb.MemoryOperation(edit=pb.EditOp(uri=caller.uri(TEA))))
    async with Worker(channel) as worker:
        for attempt in (1, 2):
            lease = (await worker.take()).lease
            await worker.send(output=pb.OutputChunk(lease=lease, output_id="o", items=[broken]))
            ended = pb.JOB_OUTCOME_FAILED if attempt == 2 else pb.JOB_OUTCOME_REQUEUED
            assert (await worker.verdict(lease)).outcome == ended
            verdict = await worker.complete(lease, "o", 1, usage=[used("operations")])
            assert verdict.outcome == pb.JOB_OUTCOME_LEASE_LOST
            # Only once: what is sent of a lease that is over changes nothing.
            await worker.complete(lease, "o", 1, usage=[used("operations", tokens=1000)])
    task = await caller.task(committed.task_id)
    assert task.result.outcome == UNPARSEABLE
    assert spent(task.result) == {("m", "operations"): (2, 20, 10)}


async def test_numbers_beyond_measure_do_not_hide_the_task(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    most = 2**63 - 1
    async with Worker(channel) as worker:
        for _ in range(2):
            lease = (await worker.take()).lease
            await worker.fail(lease, pb.FAILURE_CLASS_INTERNAL, usage=[used("operations", tokens=most)])
    assert spent((await caller.task(committed.task_id)).result)[("m", "operations")][1] == most
