"""Recorded extractions, played again: a conversation, what models answered, and what became of it.

A case is a folder with `session.json` (messages as the contract's JSON), `record.json` (as `runekeep task record
--json` prints it) and `operations.json` (those of the memory diff). To play it, a real server and a real extractor get
the conversation, and a double of the Messages API gives the recorded answers in their order, whatever it is asked: so a
case holds what is made of answers, from their parsing to the memories that are written, while prompts may change.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from runekeep import Client
from runekeep.client.sessions.messages import message_from_wire
from runekeep.v1 import common_pb2
from tests.acceptance.processes import Processes, environment
from tests.doubles.messages_api import Behaviour, MessagesApi, Request, Response, answer

FOLDER = Path(__file__).parent
WAIT_SECONDS = 90.0
# What the server can do is not found out by questions, which are no part of a case.
WORKER = {
    "RUNEKEEP_EXTRACTOR_STRUCTURED_OUTPUT": "on",
    "RUNEKEEP_EXTRACTOR_TOOLS": "on",
    "ANTHROPIC_API_KEY": "any",
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """What one extraction left: its record as the command prints it, and the operations of its memory diff."""

    record: Json
    operations: Json

    @property
    def answers(self) -> list[tuple[int, str, str, str]]:
        """Attempt, phase, stop reason and answer of each call, in order."""
        return [
            (attempt["number"], call["phase"], call["stop_reason"], call["answer"])
            for attempt in self.record["attempts"]
            for call in attempt["calls"]
        ]

    @property
    def ends(self) -> list[tuple[int, str]]:
        """Number of each attempt and the class of its failure; none: applied."""
        messages = [(one["number"], (one.get("failure") or {}).get("message", "")) for one in self.record["attempts"]]
        return [(number, message.partition(":")[0]) for number, message in messages]


def cases() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob("*/session.json"))


def recorded(case: str) -> Played:
    """What the case holds; before it was played first, the answers alone."""
    operations = FOLDER / case / "operations.json"
    return Played(_read(case, "record.json"), json.loads(operations.read_text()) if operations.exists() else {})


def write(case: str, played: Played) -> None:
    """Makes what was played what the case holds."""
    for name, value in (("record.json", played.record), ("operations.json", played.operations)):
        (FOLDER / case / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def play(fleet: Processes, case: str) -> Played:
    """Runs the conversation through the real thing, with the recorded answers. Raises AssertionError when they are
    too few, or are not asked for."""
    script = [_behaviour(*call[2:]) for call in recorded(case).answers]
    with MessagesApi() as api:
        api.script(*script)
        fleet.server(RUNEKEEP_BACKOFF_FIRST_SECONDS="0.05", RUNEKEEP_BACKOFF_MAX_SECONDS="0.1")
        fleet.extractor("worker", "--concurrency", "1", ANTHROPIC_BASE_URL=api.url, **WORKER)
        with Client(fleet.address) as client:
            session = client.session(case.replace("_", "-"))
            session.add_messages([message_from_wire(message) for message in _messages(case)])
            commit = session.commit()
            task = client.wait_task(commit["task_id"], timeout=WAIT_SECONDS)
            assert task["status"] == "completed", fleet.log()
            assert len(api.calls) == len(script), "as many calls as were recorded"
            operations = client.memory_diff(commit["archive_uri"])["operations"]
            return Played(_printed(fleet, commit["task_id"]), json.loads(json.dumps(operations)))


def _behaviour(stop_reason: str, text: str) -> Behaviour:
    """One answer as it came. Where tools were called it is the content as JSON."""
    if stop_reason != "tool_use":
        return answer(text, stop_reason=stop_reason)
    content = json.loads(text)

    def behave(request: Request) -> Response:
        response = answer("", stop_reason=stop_reason)(request)
        assert isinstance(response.body, dict)
        return Response(response.status, {**response.body, "content": content})

    return behave


def _messages(case: str) -> Iterator[common_pb2.Message]:
    for message in _read(case, "session.json"):
        yield json_format.ParseDict(message, common_pb2.Message())


def _printed(fleet: Processes, task_id: str) -> Json:
    """What the command prints."""
    command = [sys.executable, "-m", "runekeep", "task", "record", task_id, "--json", "--address", fleet.address]
    printed = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True).stdout
    record: Json = json.loads(printed)
    return record


def _read(case: str, name: str) -> Any:
    return json.loads((FOLDER / case / name).read_text())
