"""Policies of sessions: one form that is written as it is read, and the rule of session skills."""

import json
from typing import Any

import grpc
import pytest

from runekeep import AsyncClient, InvalidArgumentError
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, policy, said, unique, used_tool
from tests.support.fork_server import run_module
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

SERVER_SETTINGS = {"RUNEKEEP_SESSION_SKILLS": "true"}
ON, OFF = {"enabled": True}, {"enabled": False}
WHOLE = {
    "self": ON,
    "peer": ON,
    "memory_types": {"names": ["events", "profile"]},
    "session_skills": OFF,
    "review": "all",
}


@pytest.mark.parametrize(
    "given",
    [
        {},
        WHOLE,
        {"self": OFF, "peer": ON},
        {"memory_types": {"names": []}},
        {"session_skills": ON, "memory_types": None},
        {"review": "destructive"},
    ],
)
async def test_a_policy_is_set_exactly_as_it_was_read(server: ServerProcess, given: dict[str, Any]) -> None:
    async with AsyncClient(server.address, user=unique("ann")) as client:
        read = (await (await client.create_session("one", memory_policy=given)).info())["memory_policy"]
        assert read == {"self": ON, "peer": OFF, "memory_types": None, "session_skills": None, "review": None} | given
        other = await client.create_session("two", memory_policy=WHOLE)
        assert (await other.update(memory_policy=read))["memory_policy"] == read
        assert (await (await client.create_session("three", memory_policy=read)).info())["memory_policy"] == read
        assert (await other.commit(read))["status"] == "skipped"


async def test_the_json_of_the_seed_is_the_same_policy(server: ServerProcess) -> None:
    seed = {"self": ON, "peer": OFF, "memory_types": ["profile", "preferences"]}
    async with AsyncClient(server.address, user=unique("ann")) as client:
        session = await client.create_session("s", memory_policy=seed)
        read = (await session.info())["memory_policy"]
        names = {"names": ["profile", "preferences"]}
        assert read == {**seed, "memory_types": names, "session_skills": None, "review": None}
        every = await session.update(memory_policy={**seed, "memory_types": None})
        assert every["memory_policy"] == {**read, "memory_types": None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"peers": ON},
        {"self": True},
        {"self": {"enabled": "yes"}},
        {"self": {}},
        {"peer": {"enabled": True, "only": "bob"}},
        {"memory_types": "profile"},
        {"memory_types": [1]},
        {"memory_types": {"name": ["profile"]}},
        {"memory_types": {"names": "profile"}},
        {"review": "some"},
        {"review": ON},
    ],
)
async def test_another_form_is_refused_and_changes_nothing(server: ServerProcess, wrong: dict[str, Any]) -> None:
    async with AsyncClient(server.address, user=unique("ann")) as client:
        session = await client.create_session("s", memory_policy=WHOLE)
        with pytest.raises(ValueError, match="memory_policy"):
            await session.update(memory_policy=wrong)
        with pytest.raises(InvalidArgumentError, match=r"unknown names: 'evnts'.*events.*session_skills"):
            await session.update(memory_policy={"memory_types": {"names": ["profile", "evnts"]}})
        assert (await session.info())["memory_policy"] == WHOLE


def test_the_command_line_takes_a_policy_as_it_prints_it(server: ServerProcess) -> None:
    user = unique("ann")

    def run(*arguments: str) -> str:
        ended = run_module("runekeep", "session", *arguments, "--address", server.address, "--user", user)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run("create", "one", "--policy", json.dumps(WHOLE))
    read = json.loads(run("show", "one", "--json"))["memory_policy"]
    assert read == WHOLE
    run("create", "two", "--policy", json.dumps(read))
    (line,) = [line for line in run("show", "two").splitlines() if line.startswith("Policy: ")]
    told = run("update", "one", "--policy", line.removeprefix("Policy: "))
    assert line in told
    assert json.loads(run("show", "one", "--json"))["memory_policy"] == WHOLE


def test_the_command_line_says_when_a_policy_rules_session_skills_out(server: ServerProcess) -> None:
    def told(given: dict[str, Any]) -> str:
        arguments = ("session", "create", "--policy", json.dumps(given), "--address", server.address)
        return run_module("runekeep", *arguments, "--user", unique("ann")).stdout

    assert "`memory_types` does not name `session_skills`" in told({"memory_types": ["events", "trajectories"]})
    assert "`self` is not enabled" in told({"self": OFF, "peer": ON})
    for silent in ({}, {"memory_types": ["session_skills", "trajectories"]}, WHOLE):
        assert "session skills" not in told(silent)


@pytest.mark.parametrize(
    ("allowed", "extracted"),
    [
        # The server's setting enables them here.
        (policy(), True),
        (policy(skills=True), True),
        (policy(types=["session_skills", "trajectories"]), True),
        (policy(skills=False), False),
        (policy(self=False, peer=True, skills=True), False),
        (policy(types=["trajectories"], skills=True), False),
        (policy(types=["session_skills", "events"], skills=True), False),
    ],
)
async def test_session_skills_follow_one_rule(
    caller: Caller, channel: grpc.aio.Channel, allowed: Any, extracted: bool
) -> None:
    batch = (said("Walk the dog: leash first.", peer="bob"), used_tool("t1", "found the leash"))
    committed = await caller.committed(*batch, policy=allowed)
    async with Worker(channel) as worker:
        assignment = await worker.take()
        assert assignment.plan.session_skills is extracted
        skill = write("session_skills", skill_name="walk", steps="1. Take the leash", ranges=[(1, 1)])
        verdict = await worker.deliver(assignment.lease, skill, summary="A walk")
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert result.memories_extracted.get("session_skills", 0) == int(extracted)
    if not extracted:
        (skipped,) = result.skipped
        assert skipped.reason == "type_filtered"
        for condition in ("setting `session_skills`", "enables `self`", "names `session_skills`", "execution phase"):
            assert condition in skipped.message
