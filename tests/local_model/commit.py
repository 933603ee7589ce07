"""One commit with the small model. What is asserted are facts of the protocol, which hold however little the model
understands; what it made of the conversation is printed."""

import json
import textwrap
import time
from collections.abc import Mapping
from typing import Any

from runekeep import Client, TextPart
from tests.acceptance.processes import Processes
from tests.local_model.model import NAME
from tests.local_model.shim import Shim

SPACE = "viking://user/default/"
CONVERSATION = (
    ("user", "Hi, I'm Ana Duarte. I moved from Porto to Lisbon on 2 March 2026 and I drink only green tea now."),
    ("assistant", "Noted, Ana: green tea, and you live in Lisbon since 2 March 2026."),
    ("user", "My sister Rita opens her bakery on Rua das Flores on 14 April. Please remind me to bring flowers."),
    ("assistant", "I will remind you to bring flowers to Rita's bakery on 14 April."),
)
# Fewer types make a shorter prompt, which is what takes a small model on two cores its time.
POLICY = {"memory_types": ["profile", "preferences", "entities", "events"]}
SERVER = {
    "RUNEKEEP_ATTEMPT_SECONDS": "7200",
    "RUNEKEEP_MAX_ATTEMPTS": "2",
    "RUNEKEEP_BACKOFF_FIRST_SECONDS": "0.1",
    "RUNEKEEP_BACKOFF_MAX_SECONDS": "0.2",
}
EXTRACTOR = {
    "RUNEKEEP_EXTRACTOR_MODEL": NAME,
    "RUNEKEEP_EXTRACTOR_MAX_TOKENS": "512",
    "RUNEKEEP_EXTRACTOR_MODEL_TIMEOUT": "3600",
}
WAIT_SECONDS = 7200.0
OUTCOMES = {
    "completed": ("applied", "nothing_to_extract", "partly_rejected", "nothing_applied"),
    "failed": ("unparseable",),
}
SHOWN = 300


def run(fleet: Processes, shim: Shim, *, chat: bool) -> None:
    """One commit from its messages to its end."""
    fleet.server(**SERVER)
    address = {"OPENAI_BASE_URL": f"{shim.url}/v1"} if chat else {"ANTHROPIC_BASE_URL": shim.url}
    engine = "openai" if chat else "anthropic"
    fleet.extractor("worker", "--engine", engine, "--concurrency", "1", **address, **EXTRACTOR)
    began = time.monotonic()
    with Client(fleet.address) as client:
        session = client.session(session_id="chat")
        for role, text in CONVERSATION:
            session.add_message(role, [TextPart(text)])
        task = client.wait_task(session.commit(POLICY)["task_id"], timeout=WAIT_SECONDS)
        show(task, shim, time.monotonic() - began)
        for memory in memories(client):
            print(f"{memory['uri']}: {json.dumps(memory['fields'], ensure_ascii=False)}")
        check(client, fleet, task, shim)


def check(client: Client, fleet: Processes, task: Mapping[str, Any], shim: Shim) -> None:
    """What holds whatever the model says."""
    log = fleet.log("worker")
    recorded = [call for attempt in client.extraction_record(task["task_id"]) for call in attempt["calls"]]
    spent = client.usage("chat")["usage"]

    result = task["result"]
    assert result["outcome"] in OUTCOMES[task["status"]], result["outcome"]
    if task["status"] == "completed":
        assert result["extractor"]["model"] == NAME
    else:
        # Its own words for what the model did, and no other fault.
        assert task["error"]["message"].startswith(("invalid_output: ", "rejected_output: ")), task["error"]

    assert shim.exchanges, "the model was asked"
    assert [call["answer"] for call in recorded] == [one.text for one in shim.exchanges], "kept as it was said"
    assert sum(entry["calls"] for entry in spent) == len(shim.exchanges), "every call is counted"
    for name in ("input_tokens", "output_tokens"):
        assert sum(entry[name] for entry in spent) > 0
    said = sum(one.usage["output_tokens"] for one in shim.exchanges)
    assert sum(entry["output_tokens"] for entry in spent) == said, "as the server counted"

    lacks = [json.loads(line)["feature"] for line in log.splitlines() if '"model_server_lacks_feature"' in line]
    assert ("structured_output" in lacks) == (not shim.structured), lacks
    for one in shim.exchanges:
        if one.constrained and one.stop_reason == "end_turn":
            assert isinstance(json.loads(one.text), dict), "held to the schema"
    assert all(one.constrained for one in shim.exchanges) == shim.structured or "tools" in lacks

    made = memories(client)
    assert all(memory["uri"].startswith(SPACE) for memory in made), "nothing outside of the job's space"
    assert {memory["memory_type"] for memory in made} <= {*POLICY["memory_types"]}, "nothing that was not allowed"
    assert bool(made) == bool(result["memories_extracted"])


def memories(client: Client) -> list[Mapping[str, Any]]:
    """All that there are."""
    entries = client.tree("viking://", level_limit=16)["entries"]
    return [client.get_memory(entry["uri"]) for entry in entries if entry["memory_type"]]


def show(task: Mapping[str, Any], shim: Shim, seconds: float) -> None:
    """What came out, in full."""
    show_result(task, seconds)
    for number, one in enumerate(shim.exchanges, 1):
        form = "held to a schema" if one.constrained else "free"
        show_answer(f"answer {number} ({form}, {one.stop_reason}, {one.usage['output_tokens']} tokens)", one.text)


def show_result(task: Mapping[str, Any], seconds: float) -> None:
    """How it ended."""
    print(f"task: {task['status']} after {task['attempt']} attempts, {seconds:.0f} s")
    if task["error"]:
        print(f"error: {task['error']}")
    if task["result"]:
        result = task["result"]
        print(f"outcome: {result['outcome']}; dropped items: {result['dropped_items']}")
        print(f"memories: {json.dumps(result['memories_extracted'])}")


def show_answer(title: str, text: str) -> None:
    """What the model said, or its beginning."""
    print(f"{title}:")
    more = f"\n[{len(text) - SHOWN} characters more]" if len(text) > SHOWN else ""
    print(textwrap.indent(text[:SHOWN] + more, "  | ", lambda line: True), flush=True)
