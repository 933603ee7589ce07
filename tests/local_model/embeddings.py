"""llama.cpp's server as model and as embedder: a commit, a search, a change of the embedder and an outage.

Vectors of a chat model prove the protocol, not quality.
"""

import sys
import time
from collections.abc import Callable, Sequence

from runekeep import Client, TextPart
from runekeep.client.admin import EmbedderChange
from tests.acceptance.processes import Processes
from tests.acceptance.processes import run as run_command
from tests.local_model.commit import CONVERSATION, EXTRACTOR, SERVER, WAIT_SECONDS, show_answer, show_result
from tests.local_model.model import DIMENSION, NAME, model_server
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess

# No type of memory: the model writes a summary alone, which makes the shortest prompt.
POLICY: dict[str, list[str]] = {"memory_types": []}
# Answers that may be as long are streamed.
ANSWERS = {"RUNEKEEP_EXTRACTOR_MAX_TOKENS": "4096"}
LONG = "Ana drinks green tea with one slice of lemon and no sugar. " * 40
"""More tokens than llama.cpp takes in one batch: it answers 500, and the text is shortened."""


def run(fleet: Processes) -> None:
    """Prints each step when it is done."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with model_server(port):
        server = fleet.server(**SERVER, **describe_embedder(url, "NEXT_EMBEDDING"))
        openai = {**EXTRACTOR, **ANSWERS, "OPENAI_BASE_URL": f"{url}/v1"}
        fleet.extractor("worker", "--engine", "openai", "--concurrency", "1", **openai)
        with Client(fleet.address) as client:
            change_embedder(client, server)
        server.stop()
        own = {"RUNEKEEP_EMBEDDER": "openai", **describe_embedder(url, "EMBEDDING")}
        server = fleet.server(fleet.address, **SERVER, **own)
        with Client(fleet.address) as client:
            finish_change(client)
    with Client(fleet.address) as client:
        step("llama.cpp's server is killed")
        task_id = work_without_model(client)
        with model_server(port):
            step("llama.cpp's server is back")
            end_commit(client, task_id)
            search(client, "orange juice", "Pedro drinks")
            search(client, "red bicycle", "red bicycle")
            step("what was written and committed meanwhile is found by vectors")
    for event in ("embedder_away", "embedder_back"):
        assert f'"{event}"' in server.log(), event


def change_embedder(client: Client, server: ServerProcess) -> None:
    """Makes a commit and a memory, and changes from minilm to llama.cpp while the server runs."""
    end_commit(client, start_commit(client, "monday", CONVERSATION))
    client.put_memory("preferences", {"topic": "Tea", "content": LONG})
    search(client, "green tea")
    step("the messages and a memory are found by the vectors of minilm")
    index_embed(server.address, "--to", "openai", "--rate", "0")
    until(lambda: not embedder_change(client)["users_left"])
    # The last rows are counted in the step after the one that switched their user.
    until(lambda: (change := embedder_change(client))["done_rows"] == change["total_rows"])
    change = embedder_change(client)
    assert change["model"] == f"openai/{NAME}/{DIMENSION}"
    assert '"embedding_batch_refused"' in server.log(), "the long text was shortened"
    search(client, "green tea")
    step(f"{change['done_rows']} memories and messages are found by the vectors of llama.cpp")


def finish_change(client: Client) -> None:
    """Ends the change on a server that has the new embedder in its settings, and writes another memory."""
    index_embed(client.address, "--finish")
    until(lambda: embedder_change(client)["state"] == "finished")
    client.put_memory("preferences", {"topic": "Coffee", "content": "Rita drinks black coffee"})
    search(client, "black coffee", "Rita drinks")
    step("the change is finished, and what was written after it is found")


def work_without_model(client: Client) -> str:
    """Writes, commits and searches while model and embedder are away. Returns the id of the task that waits."""
    task_id = start_commit(client, "tuesday", [("user", "I sold my red bicycle to Pedro")])
    client.put_memory("preferences", {"topic": "Juice", "content": "Pedro drinks orange juice"})
    search(client, "orange juice", "Pedro drinks", by_vectors=False)
    search(client, "red bicycle", "red bicycle", by_vectors=False)
    step("what is written and committed meanwhile is found by words")
    until(lambda: client.get_task(task_id)["waiting_for"] == "model")
    step("the commit waits for the model")
    return task_id


def describe_embedder(url: str, group: str) -> dict[str, str]:
    """Returns settings; `group`: EMBEDDING or NEXT_EMBEDDING. The times are those of a busy machine."""
    described = {
        "URL": f"{url}/v1",
        "MODEL": NAME,
        "DIMENSION": str(DIMENSION),
        "BATCH_TEXTS": "8",
        "PARALLEL_BATCHES": "1",
        "BATCH_SECONDS": "600",
        "QUERY_SECONDS": "60",
    }
    return {f"RUNEKEEP_{group}__{name}": value for name, value in described.items()}


def start_commit(client: Client, session_id: str, messages: Sequence[tuple[str, str]]) -> str:
    """Returns the id of the task."""
    session = client.session(session_id=session_id)
    for role, text in messages:
        session.add_message(role, [TextPart(text)])
    return session.commit(POLICY)["task_id"]


def end_commit(client: Client, task_id: str) -> None:
    """Waits until the commit has completed with a summary, and prints what the model said."""
    began = time.monotonic()
    task = client.wait_task(task_id, timeout=WAIT_SECONDS)
    show_result(task, time.monotonic() - began)
    for attempt in client.extraction_record(task_id):
        for call in attempt["calls"]:
            show_answer(f"answer ({call['phase']}, {call['stop_reason']})", call["answer"])
    assert task["status"] == "completed", task
    assert task["result"] is not None and task["result"]["outcome"] == "nothing_to_extract", task
    step("the commit has completed")


def search(client: Client, query: str, expected: str = "", *, by_vectors: bool = True) -> None:
    """Waits until the first result holds `expected`, and all results are found by vectors or all by words alone."""

    def is_found() -> bool:
        answer = client.find(query)
        results = answer["results"]
        if bool(answer["degraded"]) == by_vectors or (by_vectors and answer["pending_passages"]) or not results:
            return False
        return expected in str(results[0]) and all(bool(one["detail"]["dense_rank"]) == by_vectors for one in results)

    until(is_found)


def embedder_change(client: Client) -> EmbedderChange:
    change = client.admin.status()["embedder_change"]
    assert change is not None
    return change


def index_embed(address: str, *options: str) -> None:
    """Runs the command and prints what it says."""
    command = (sys.executable, "-m", "runekeep", "index", "embed", *options)
    print(run_command(*command, RUNEKEEP_ADDRESS=address).stdout, end="", flush=True)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def step(said: str) -> None:
    print(f"- {said}", flush=True)
