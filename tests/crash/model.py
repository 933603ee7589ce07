"""The model of this suite: it reads a commit's id and the ledgers in the prompt, and answers with the changes.

Every append hangs on what was there: the patch searches the id that stands first, as the model was shown it. Of a turn
it finds out the same by a job of its own and by its commit. In a session's one bucket each turn is a fact, which rests
on all turns that were folded in with it: folded in a second time, beside others, it would gain weight.
"""

import json
import re
from typing import Any

from tests.crash.history import HEADING, LEDGERS, bulk_of, found_out, ids_of, ledger_text, marks_of
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


def answered(request: Request) -> dict[str, Any]:
    """The answer to a prompt. Raises Confused."""
    prompt = "\n".join(block["text"] for block in request.body["messages"][0]["content"])
    if _section(prompt, "conversation"):
        return _remembered(prompt)
    if _section(prompt, "turn"):
        ((id, _),) = _named(prompt, "turn")
        return _noted(id)
    if _section(prompt, "turns"):
        return _folded(prompt)
    if candidates := _records(prompt, "candidates"):
        return {"decisions": [_new(candidate["id"]) for candidate in candidates]}
    raise Confused("a prompt about nothing")


def _new(candidate: str) -> dict[str, Any]:
    """Of a memory that is like another: marks and bulk of two commits are two."""
    return {"candidate": candidate, "decision": "create", "items": [], "reason": ""}


def _named(prompt: str, section: str) -> set[tuple[str, str]]:
    """The one commit that a section is about, and its size."""
    found = set(_ID.findall(_section(prompt, section)))
    if len(found) != 1:
        raise Confused(f"a {section} of {len(found)} commits: {sorted(id for id, _ in found)}")
    return found


def _remembered(prompt: str) -> dict[str, Any]:
    conversation = _section(prompt, "conversation")
    ((id, size),) = _named(prompt, "conversation")
    first = min(int(number) for number in _SAID.findall(conversation))
    ranges = [{"start": first, "end": first}]
    memories = _records(prompt, "memories")
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
    unnoted = [record["turn"] for record in _records(prompt, "unnoted")]
    return {
        "turns": [{"turn": name, **_noted(id)} for name in unnoted],
        "reasoning": "",
        "write_operations": writes,
        "edit_operations": edits,
        "delete_operations": [],
        "summary": {"topic": id, "intent": "leave traces", "result": "left", "status": "done", "abstract": id},
    }


def _noted(id: str) -> dict[str, Any]:
    """What a turn said."""
    found = found_out(id)
    return {
        "objective": found.objective,
        "topics": [],
        "assertions": [_signal(*pair, "must") for pair in found.assertions],
        "exceptions": [],
        "facts": [_signal(*pair, "high") for pair in found.facts],
    }


def _folded(prompt: str) -> dict[str, Any]:
    """What becomes of the buckets. Turns of which nobody has found out anything yet come again when somebody has."""
    turns = {record["turn"]: fact for record in _records(prompt, "turns") for fact in record.get("facts", ())}
    facts = [{**_signal(fact["values"][0], "folded in", "high"), "turns": list(turns)} for fact in turns.values()]
    buckets = _records(prompt, "buckets")
    if len(buckets) > 1:
        raise Confused(f"a session with {len(buckets)} buckets")
    told = {"short_desc": "", "topics": [], "objective": "", "objective_hint": "", "assertions": [], "exceptions": []}
    changed = [{"bucket": one["bucket"], "name": "", **told, "facts": facts} for one in buckets if facts]
    added = [{"name": "Theme", **told, "facts": facts}] if facts and not buckets else []
    return {"reasoning": "", "changed": changed, "added": added, "disabled": []}


def _signal(key: str, value: str, severity: str) -> dict[str, Any]:
    return {"key": key, "form": "is", "values": [value], "severity": severity, "scope": "unsaid", "applies_to": ""}


def _records(prompt: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _section(prompt, name).splitlines() if line]


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
