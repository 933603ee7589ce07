"""A commit that loses llama.cpp's server amid the model's answer, and completes after its return without help."""

import json
import urllib.request

from runekeep import Client
from tests.acceptance.processes import Processes
from tests.local_model.commit import CONVERSATION, EXTRACTOR, SERVER
from tests.local_model.embeddings import end_commit, start_commit, step, until
from tests.local_model.model import model_server
from tests.support.ports import free_port

TOKENS_BEFORE_OUTAGE = 5
MAX_TOKENS = "1024"


def run(fleet: Processes) -> None:
    """Prints each step when it is done."""
    fleet.server(**SERVER)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    openai = {**EXTRACTOR, "RUNEKEEP_EXTRACTOR_MAX_TOKENS": MAX_TOKENS, "OPENAI_BASE_URL": f"{url}/v1"}
    with Client(fleet.address) as client:
        with model_server(port):
            fleet.extractor("worker", "--engine", "openai", "--concurrency", "1", **openai)
            task_id = start_commit(client, "monday", CONVERSATION)
            until(lambda: is_answering(client, url, task_id))
        step("llama.cpp's server is killed amid its answer")
        until(lambda: client.get_task(task_id)["waiting_for"] == "model")
        step("the commit waits for the model")
        with model_server(port):
            step("llama.cpp's server is back")
            end_commit(client, task_id)


def is_answering(client: Client, url: str, task_id: str) -> bool:
    """Returns whether the model has begun its answer to the commit, and not ended it."""
    with urllib.request.urlopen(f"{url}/slots", timeout=60) as response:
        (slot,) = json.load(response)
    progress = client.get_task(task_id)["progress"]
    if progress is None or progress["phase"] != "reasoning" or not slot["is_processing"]:
        return False
    return any(one["n_decoded"] > TOKENS_BEFORE_OUTAGE for one in slot["next_token"])
