"""A double of the program that the Claude Agent SDK drives: as much of its protocol on stdin and stdout as hooks need.

It answers every prompt with the text of CLAUDE_DOUBLE_ANSWER, writes a transcript as Claude Code does, calls the hooks
that the SDK registered, and writes to the file CLAUDE_DOUBLE_RECORD what a model would have been told.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

SESSION = str(uuid4())


class Program:
    def __init__(self) -> None:
        self._answer = os.environ["CLAUDE_DOUBLE_ANSWER"]
        self._record = Path(os.environ["CLAUDE_DOUBLE_RECORD"])
        self._transcript = self._record.with_name(f"{SESSION}.jsonl")
        self._hooks: dict[str, list[dict[str, Any]]] = {}

    def run(self) -> None:
        while (message := self._read()) is not None:
            if message["type"] == "control_request":
                self._hooks |= message["request"].get("hooks") or {}
                response = {"subtype": "success", "request_id": message["request_id"], "response": {}}
                self._write({"type": "control_response", "response": response})
            elif message["type"] == "user":
                self._turn(message["message"]["content"])

    def _turn(self, prompt: str) -> None:
        added = self._call("UserPromptSubmit", prompt=prompt)
        told = {"arguments": sys.argv[1:], "prompt": prompt, "added": added}
        with self._record.open("a") as record:
            record.write(json.dumps(told) + "\n")
        self._note("user", prompt)
        said = [{"type": "text", "text": self._answer}]
        self._note("assistant", said)
        whole = {"role": "assistant", "content": said, "model": "double"}
        self._write({"type": "assistant", "message": whole, "parent_tool_use_id": None, "session_id": SESSION})
        self._call("Stop", stop_hook_active=False)
        self._write(
            {
                "type": "result",
                "subtype": "success",
                "duration_ms": 1,
                "duration_api_ms": 1,
                "is_error": False,
                "num_turns": 1,
                "session_id": SESSION,
                "result": self._answer,
            }
        )

    def _note(self, role: str, content: Any) -> None:
        """Adds a line to the transcript."""
        line = {
            "type": role,
            "uuid": str(uuid4()),
            "sessionId": SESSION,
            "timestamp": "2026-03-02T09:00:00.000Z",
            "message": {"role": role, "content": content},
        }
        with self._transcript.open("a") as transcript:
            transcript.write(json.dumps(line) + "\n")

    def _call(self, event: str, **fields: Any) -> list[str]:
        """Calls the hooks of an event. Returns what they add for the model."""
        added = []
        given = {"session_id": SESSION, "transcript_path": str(self._transcript), "cwd": "/", "hook_event_name": event}
        for matcher in self._hooks.get(event, []):
            for callback in matcher["hookCallbackIds"]:
                request = {"subtype": "hook_callback", "callback_id": callback, "input": given | fields}
                name = str(uuid4())
                self._write({"type": "control_request", "request_id": name, "request": request | {"tool_use_id": None}})
                answer = self._read()
                assert answer is not None and answer["response"]["request_id"] == name, answer
                assert answer["response"]["subtype"] == "success", answer
                output = answer["response"]["response"].get("hookSpecificOutput", {})
                added.append(output.get("additionalContext", ""))
        return added

    def _read(self) -> Any:
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def _write(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)


if __name__ == "__main__":
    if "-v" in sys.argv or "--version" in sys.argv:
        print("2.1.0 (Claude Code)")
    else:
        Program().run()
