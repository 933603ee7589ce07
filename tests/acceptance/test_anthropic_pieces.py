"""A conversation that is too long for one call, over the real stream and server."""

import re
from typing import Any

from runekeep import Client, TextPart, ToolPart
from tests.acceptance.processes import Processes
from tests.doubles.messages_api import MessagesApi, Request, answer

WAIT_SECONDS = 120.0
MESSAGES = 9
# Some 10,000 tokens each, as they are estimated.
FILLING = "Tea again, and nothing else that matters. " * 700
TEA = "viking://user/memories/preferences/Tea.md"


def numbers(request: Request) -> list[int]:
    return [int(found) for found in re.findall(r"^#(\d+) ", request.last_text, re.MULTILINE)]


def told(request: Request) -> dict[str, Any]:
    """The first piece writes a preference and counts calls, the later ones change the one and count on."""
    shown = numbers(request)
    ranges = [{"start": shown[0], "end": shown[-1]}]
    tool = [("tool_name", "web_search"), ("total_calls", len(shown)), ("success_count", len(shown))]
    writes = [written("tools", tool, ranges)]
    edits = []
    if shown[0] == 1:
        writes.append(written("preferences", [("topic", "Tea"), ("content", "Drinks tea.")], ranges))
    else:
        block = {"search": "tea", "replace": "more tea", "start_line": 0}
        patches = [{"field": "content", "blocks": [block], "value": None}]
        edits.append({"uri": TEA, "patches": patches, "ranges": ranges, "reason": "said again"})
    summary = {"topic": f"Tea up to {shown[-1]}", "intent": "talk", "result": "noted", "status": "done"}
    return {
        "reasoning": "",
        "write_operations": writes,
        "edit_operations": edits,
        "delete_operations": [],
        "summary": summary,
    }


def written(memory_type: str, fields: list[tuple[str, Any]], ranges: list[dict[str, int]]) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in fields]
    return {"memory_type": memory_type, "fields": named, "ranges": ranges, "reason": "said", "abstract": ""}


def test_a_long_conversation_is_one_commit_whose_memories_are_touched_once(fleet: Processes) -> None:
    with MessagesApi() as api:
        api.otherwise = answer(told)
        fleet.server()
        fleet.extractor("worker", ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="any")
        with Client(fleet.address) as client:
            session = client.session()
            for number in range(1, MESSAGES + 1):
                call = ToolPart(tool_id=f"c{number}", tool_name="web_search", status="completed")
                session.add_message("user", [TextPart(f"{number}. {FILLING}"), call])
            committed = session.commit()
            task = client.wait_task(committed["task_id"], timeout=WAIT_SECONDS)
            assert task["status"] == "completed" and task["result"] is not None, fleet.log()
            pieces = [numbers(call) for call in api.calls]
            assert len(pieces) > 1
            assert [number for shown in pieces for number in shown] == list(range(1, MESSAGES + 1))
            assert (task["result"]["outcome"], task["result"]["rejected"]) == ("applied", [])
            tea = client.get_memory(TEA)
            assert tea["version"] == 1
            assert tea["fields"]["content"] == "Drinks " + "more " * (len(pieces) - 1) + "tea."
            assert len(tea["sources"]) == MESSAGES
            tool = client.get_memory("viking://user/memories/tools/web_search.md")
            assert (tool["version"], tool["fields"]["total_calls"]) == (1, MESSAGES)
            assert f"Tea up to {MESSAGES}" in client.read(f"{committed['archive_uri']}/.overview.md")
            usage = {entry["phase"]: entry["calls"] for entry in task["result"]["usage"]}
            assert usage["operations"] == len(pieces)
