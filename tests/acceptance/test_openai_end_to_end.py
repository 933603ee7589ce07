"""The engine `openai` in its own process: the real SDK against a double of the Chat Completions API, over an outage."""

import time

from runekeep import Client
from runekeep_extractor.pipeline.engine import VERSION
from tests.acceptance.processes import Processes
from tests.acceptance.test_anthropic_end_to_end import WAIT_SECONDS, remembered, talk
from tests.doubles.chat_api import ChatApi, answer, rate_limited, tool_calls


def test_a_commit_goes_through_reads_an_outage_and_a_streamed_answer(fleet: Processes) -> None:
    with ChatApi(streams=True, structured_output=False) as api:
        api.script(tool_calls(("ls", {"uri": "viking://user/memories"})), rate_limited(retry_after=0.01))
        api.otherwise = answer(remembered)
        api.down()
        fleet.server(RUNEKEEP_BACKOFF_FIRST_SECONDS="0.1", RUNEKEEP_BACKOFF_MAX_SECONDS="0.2")
        model = {"RUNEKEEP_EXTRACTOR_MODEL": "some-model", "RUNEKEEP_EXTRACTOR_MAX_TOKENS": "8000"}
        fleet.extractor("worker", "--engine", "openai", "--concurrency", "1", OPENAI_BASE_URL=api.url, **model)
        with Client(fleet.address) as client:
            task_id = talk(client)
            while client.get_task(task_id)["waiting_for"] != "model":
                time.sleep(0.05)
            api.up()
            task = client.wait_task(task_id, timeout=WAIT_SECONDS)
            assert task["status"] == "completed", fleet.log()
            assert task["result"]["extractor"] == {"engine": "openai", "model": "some-model", "version": VERSION}
            assert task["result"]["memories_extracted"] == {"preferences": 1, "tools": 1}
            assert {entry["phase"] for entry in task["result"]["usage"]} == {"probe", "reasoning", "operations"}
            assert "green tea" in client.read("viking://user/memories/preferences/Tea.md")
    assert all(call.body["stream"] and call.body["response_format"] == {"type": "json_object"} for call in api.calls)
