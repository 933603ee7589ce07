"""The process itself, stopped by signals as an operator would."""

import asyncio
import json
import os
import signal
import sys

import pytest

from tests.doubles.fixed_job import FixedJob, message
from tests.unit.extractor.server_double import assignment, lease


def without_a_model():
    return {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}


async def test_the_model_engine_does_not_start_without_credentials(tmp_path):
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runekeep_extractor", "--engine", "anthropic", "--server", "127.0.0.1:1"),
        # A home of its own: the SDK looks for profiles there.
        env=without_a_model() | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await started.communicate()
    assert started.returncode == 2
    assert b"ANTHROPIC_API_KEY" in said


@pytest.fixture
async def process(server):
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runekeep_extractor", "--server", server[1], "--worker-id", "w9", "--concurrency", "3"),
        env=without_a_model() | {"RUNEKEEP_EXTRACTOR_GRACE": "0"},
        stderr=asyncio.subprocess.PIPE,
    )
    yield started
    if started.returncode is None:
        started.kill()
    await started.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_gives_running_jobs_back(server, process, number):
    double, _ = server
    job = FixedJob([])
    double.memory_types = job.memory_types
    double.messages = [message(1, "I confided that my cat is called Ada. My cat is called Ada.")]
    search = double.hold("FindForJob")
    talk = await double.conversation()
    hello = await talk.welcome()
    assert (hello.worker_id, hello.extractor.engine) == ("w9", "offline")
    assert (await talk.expect("ready")).credits == 3
    talk.say(assignment=assignment(plan=job.assignment.plan))
    await search.wait()
    process.send_signal(number)
    await talk.expect("goodbye")
    assert (await talk.expect("release")).lease == lease()
    await talk.expect_end()
    talk.end()
    assert await process.wait() == 0
    lines = (await process.stderr.read()).decode().splitlines()
    logged = [json.loads(line) for line in lines]
    started = next(line for line in logged if line["event"] == "job_started")
    assert (started["job_id"], started["task_id"]) == ("job-1", "task-1")
    assert started["trace"]
    assert "confided" not in "".join(lines)
