"""A server of the Messages API that answers at once, and costs as little as can be: every question for operations gets
three new memories, every other one the answer that its schema asks for.

Prints its address, and ends when its input does. It reads of a request no more than it must, and checks none of it:
`tests.doubles.messages_api` does, and takes several times as much of the processor, which is no part of what is to be
measured.
"""

import asyncio
import itertools
import json
import re
import sys
from typing import Any

import uvloop

from runekeep_extractor.providers.probe import FORMAT_QUESTION, TOOL, TOOL_QUESTION

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_FIRST_MESSAGE = re.compile(rb"\\n#(\d+) (?:user|assistant) ")
_CANDIDATE = re.compile(rb'\\"id\\": ?\\"(c\d+)\\"')
_PLACES = "harbour kettle valve garden violin orchard printer saddle lantern compass ferry bakery quarry loom".split()
_numbers = itertools.count()


class _Connection(asyncio.Protocol):
    """One client, one request after another."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._read = bytearray()

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self._read, 0, end)
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self._read) < size:
                return
            body = bytes(self._read[end + 4 : size])
            del self._read[:size]
            payload = json.dumps(_message(body)).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
            self._transport.write(head.encode() + payload)


def _message(body: bytes) -> dict[str, Any]:
    stop_reason = "end_turn"
    if TOOL_QUESTION.encode() in body:
        stop_reason = "tool_use"
        content = [{"type": "tool_use", "id": "toolu_1", "name": TOOL.name, "input": {"word": "tea"}}]
    else:
        content = [{"type": "text", "text": json.dumps(_answer(body))}]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "instant",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": len(body) // 4, "output_tokens": 400},
    }


def _answer(body: bytes) -> dict[str, Any]:
    if FORMAT_QUESTION.encode() in body:
        return {"number": 1}
    candidates = dict.fromkeys(name.decode() for name in _CANDIDATE.findall(body))
    if candidates:
        made = [{"candidate": name, "decision": "create", "items": [], "reason": ""} for name in candidates]
        return {"decisions": made}
    first = _FIRST_MESSAGE.search(body)
    return _operations(int(first[1]) if first else 1, next(_numbers))


def _operations(message: int, number: int) -> dict[str, Any]:
    """Three memories of three types that no other call gives."""
    one, two, three = (_PLACES[number // len(_PLACES) ** place % len(_PLACES)] for place in range(3))
    written = {
        "preferences": {
            "topic": f"The {one} and the {two} {number}",
            "content": f"Wants the {one} beside the {two}, as agreed in talk {number}, and never near the {three}.",
        },
        "events": {
            "event_name": f"Visit {number} to the {two}",
            "event_time": f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}",
            "content": f"Went to the {two} for the {number}th time and came back with a {one} for the {three}.",
        },
        "entities": {
            "entity_name": f"{three.title()} {number}",
            "entity_type": "place",
            "content": f"The {three} with the number {number} stands between the {one} and the {two}.",
        },
    }
    return {
        "reasoning": "Something was wanted, something happened, and a place was named.",
        "write_operations": [
            {
                "memory_type": kind,
                "fields": [{"name": name, "value": value} for name, value in fields.items()],
                "peer_id": "",
                "ranges": [{"start": message, "end": message}],
                "reason": "It was said.",
                "abstract": "",
                "overview": "",
            }
            for kind, fields in written.items()
        ],
        "edit_operations": [],
        "delete_operations": [],
        "summary": {
            "topic": "Places",
            "intent": "settle what stands where",
            "result": "settled",
            "status": "done",
            "analysis": ["Talked about places."],
            "primary_request": "Settle what stands where.",
            "key_concepts": ["places"],
            "pending_tasks": [],
        },
    }


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(_serve())
