"""The process itself, stopped by signals as an operator would."""

import asyncio
import json
import os
import signal
import sys

import pytest

from tests.doubles.fixed_job import message
from tests.unit.extractor.server_double import assignment, lease


@pytest.fixture
async def process(server):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extractor", "--server", server[1], "--worker-id", "w9", "--concurrency", "3"),
        env=environment | {"RUNEKEEP_EXTRACTOR_GRACE": "0"},
        stderr=asyncio.subprocess.PIPE,
    )
    yield started
    if started.returncode is None:
        started.kill()
    await started.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_gives_running_jobs_back(server, process, number):
    double, _ = server
    double.messages = [message(1, "I confided that my cat is called Ada.")]
    embedding = double.hold("EmbedForJob")
    talk = await double.conversation()
    hello = await talk.welcome()
    assert (hello.worker_id, hello.extractor.engine) == ("w9", "offline")
    assert (await talk.expect("ready")).credits == 3
    talk.say(assignment=assignment())
    await embedding.wait()
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
    assert started["traceparent"]
    assert "confided" not in "".join(lines)
