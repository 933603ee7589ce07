"""The model of this suite: it reads a commit's id and the ledgers in the prompt, and answers with the changes.

Every append hangs on what was there: the patch searches the id that stands first, as the model was shown it.
"""

import json
import re
from typing import Any

from tests.crash.history import HEADING, LEDGERS, bulk_of, ids_of, ledger_text, marks_of
from tests.doubles.messages_api import Request

BULK_CHARACTERS = 160_000
"""Of each memory in bulk that a big commit makes, so that its output takes more than one chunk of 256 KiB."""

_SECTION = r"<{0}-([0-9a-f]+)>\n(.*?)\n</{0}-\1>"
_SAID = re.compile(r"^#(\d+) ", re.MULTILINE)
_ID = re.compile(r"^  commit (c\w+), (big|small)", re.MULTILINE)


class Confused(Exception):
    """The prompt is not what a commit of this suite leads to: it mixes commits, or shows other memories."""


def said(id: str, number: int, *, big: bool) -> str:
    """Text of a commit's message: its id and filler."""
    return f"commit {id}, {'big' if big else 'small'}\nmessage {number} of what was said, which is filler."


def remembered(request: Request) -> dict[str, Any]:
    """The answer to a prompt. Raises Confused."""
    prompt = "\n".join(block["text"] for block in request.body["messages"][0]["content"])
    conversation = _section(prompt, "conversation")
    found = set(_ID.findall(conversation))
    if len(found) != 1:
        raise Confused(f"a conversation of {len(found)} commits: {sorted(id for id, _ in found)}")
    ((id, size),) = found
    first = min(int(number) for number in _SAID.findall(conversation))
    ranges = [{"start": first, "end": first}]
    memories = [json.loads(line) for line in _section(prompt, "memories").splitlines() if line]
    known = {memory["memory_type"]: memory for memory in memories}
    writes = [_written("mark", {"name": name, "content": f"{id} was here"}, ranges) for name in marks_of(id)]
    if size == "big":
        bulk = "bulk " * (BULK_CHARACTERS // 5)
        writes += [_written("mark", {"name": name, "content": bulk}, ranges) for name in bulk_of(id)]
    edits = []
    for ledger in LEDGERS:
        memory = known.get(ledger)
        if memory is None:
            writes.append(_written(ledger, {"content": ledger_text((id,))}, ranges))
        else:
            edits.append(_edit(memory, id, ranges))
    return {
        "reasoning": "",
        "write_operations": writes,
        "edit_operations": edits,
        "delete_operations": [],
        "summary": {"topic": id, "intent": "leave traces", "result": "left", "status": "done", "abstract": id},
    }


def _section(prompt: str, name: str) -> str:
    found = re.search(_SECTION.format(name), prompt, re.DOTALL)
    return found[2] if found else ""


def _written(memory_type: str, fields: dict[str, str], ranges: list[dict[str, int]]) -> dict[str, Any]:
    pairs = [{"name": name, "value": value} for name, value in fields.items()]
    views = {"peer_id": "", "reason": "", "abstract": "", "overview": ""}
    return {"memory_type": memory_type, "fields": pairs, "ranges": ranges, **views}


def _edit(memory: dict[str, Any], id: str, ranges: list[dict[str, int]]) -> dict[str, Any]:
    # A long ledger is shown cut: its last line may be half an id, its first two lines are whole.
    try:
        newest = ids_of(memory["fields"]["content"])[-1]
    except (ValueError, IndexError) as error:
        raise Confused(f"{memory['uri']} is no ledger") from error
    block = {"search": f"{HEADING}\n{newest}", "replace": f"{HEADING}\n{id}\n{newest}", "start_line": 1}
    patch = {"field": "content", "blocks": [block], "value": None}
    return {"uri": memory["uri"], "patches": [patch], "ranges": ranges, "reason": ""}
