"""Replays recorded answers to prompts through a Messages API server, and records answers to new prompts. A server of
the Chat Completions API replays them too.

The file `answers/LIFE.jsonl` of each life holds pairs of a prompt's digest and its answer. A prompt without a pair is
written to a folder as `NUMBER.md`. The server then waits until a reader, who must know only this prompt, writes
`NUMBER.answer` beside it: the text of the answer, or a JSON list of content blocks.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.doubles import chat_api
from tests.doubles.messages_api import Behaviour, Request, Response, answer, error

DIRECTORY = Path(__file__).parent / "answers"
POLL_SECONDS = 0.5
_CONVERSATION = "\n# Conversation\n"
_SEEN = ("system", "messages", "tools", "output_config")
_VARYING = re.compile(r'-[0-9a-f]{16}(?=>)|, \\*"score\\*": [0-9.]+')


@dataclass(frozen=True, slots=True)
class Pair:
    """`prompt`: digest of the whole prompt. `subject`: digest of the conversation in it, which stays the same if rules,
    types or memories in the prompt change. `origin`: who answered."""

    prompt: str
    subject: str
    answer: str
    origin: str


@dataclass
class Answers:
    """The pairs of one life. `folder`: for prompts without an answer; if it is None, such prompts fail. `unanswered`:
    digests of prompts without an answer. `older`: digests of prompts that got the answer to another prompt about the
    same conversation."""

    file: Path
    folder: Path | None = None
    origin: str = ""
    unanswered: list[str] = field(default_factory=list)
    older: list[str] = field(default_factory=list)
    _by_prompt: dict[str, Pair] = field(default_factory=dict)
    _by_subject: dict[str, Pair] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.exists():
            # Not `splitlines`: an answer may hold other line separators, which JSON leaves as they are.
            for line in filter(None, self.file.read_text(encoding="utf-8").split("\n")):
                self._add(Pair(**json.loads(line)))

    def behave(self, request: Request) -> Response:
        prompt = _digest({name: request.body.get(name) for name in _SEEN})
        subject = _digest(_subject(request.body["messages"]))
        pair = self._by_prompt.get(prompt)
        if pair is None and self.folder is None and (pair := self._by_subject.get(subject)) is not None:
            self.older.append(prompt)
        if pair is None:
            self.unanswered.append(prompt)
            if self.folder is None:
                # A status that is not retried, so that only this attempt fails and the run continues.
                return error(400, "invalid_request_error", "no answer is recorded for this prompt")(request)
            pair = Pair(prompt, subject, self._ask(self.folder, request), self.origin)
            self._add(pair)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(pair), ensure_ascii=False) + "\n")
        return _behaviour(pair.answer)(request)

    def behave_as_chat(self, request: Request) -> Response:
        """Answers a request of the Chat Completions API: by its conversation, because the rest of a prompt has another
        form there."""
        pair = self._by_subject.get(_digest(_subject(_merged_results(request.body["messages"]))))
        if pair is None:
            self.unanswered.append(_digest(request.body["messages"]))
            return chat_api.error(400, "invalid_request_error", "no answer is recorded for this prompt")(request)
        if not pair.answer.startswith("[{"):
            return chat_api.answer(pair.answer)(request)
        calls = [block for block in json.loads(pair.answer) if block["type"] == "tool_use"]
        return chat_api.tool_calls(*((block["name"], block["input"]) for block in calls))(request)

    def _add(self, pair: Pair) -> None:
        self._by_prompt[pair.prompt] = self._by_subject[pair.subject] = pair

    def _ask(self, folder: Path, request: Request) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        name = folder / f"{len(self.unanswered):03}"
        _write(name.with_suffix(".md"), as_text(request.body))
        written = name.with_suffix(".answer")
        while not written.exists():
            time.sleep(POLL_SECONDS)
        return written.read_text(encoding="utf-8").strip()


def _subject(messages: Sequence[Mapping[str, Any]]) -> object:
    """Returns the conversation in the first message (the whole message if it has none), and the number of messages."""
    first = _content(messages[0]["content"])
    return first[max(first.find(_CONVERSATION), 0) :], len(messages)


def _merged_results(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the messages as the Messages API counts them: without the system prompt, results of tools in one."""
    merged: list[Mapping[str, Any]] = []
    for message in messages:
        repeats = message["role"] == "tool" and bool(merged) and merged[-1]["role"] == "tool"
        if message["role"] != "system" and not repeats:
            merged.append(message)
    return merged


def _digest(seen: object) -> str:
    """Returns the SHA-256 of a part of a request, without what differs between runs: delimiters contain the job's id,
    and scores may differ in the last digit."""
    text = json.dumps(seen, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(_VARYING.sub("", text).encode()).hexdigest()


def as_text(body: Mapping[str, Any]) -> str:
    """Returns a prompt as a reader sees it."""
    parts = ["# System\n", _content(body.get("system", ""))]
    for message in body["messages"]:
        parts.append(f"\n# {message['role'].capitalize()}\n\n{_content(message['content'])}")
    for name, title in (("tools", "Tools"), ("output_config", "Form of the answer")):
        if body.get(name):
            parts.append(f"\n# {title}\n\n{json.dumps(body[name], ensure_ascii=False, indent=1)}")
    return "\n".join(parts) + "\n"


def _content(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text") or json.dumps(block, ensure_ascii=False) for block in content)


def _behaviour(text: str) -> Behaviour:
    if not text.startswith("[{"):
        return answer(text)
    blocks = json.loads(text)

    def behave(request: Request) -> Response:
        response = answer("", stop_reason="tool_use")(request)
        assert isinstance(response.body, dict)
        return Response(response.status, {**response.body, "content": blocks})

    return behave


def _write(file: Path, text: str) -> None:
    """Replaces a file atomically, so that a reader never sees half of it."""
    part = file.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, file)
