"""Stands between the extractor and a model server, and notes what the model answered.

The Messages API of llama.cpp has no structured output. With `structured` the shim adds it: an `output_config.format`
becomes a completion that is constrained to the JSON schema. Chat completions pass through unchanged.
"""

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Longer than a small model takes for its longest answer on a busy machine.
_PATIENCE_SECONDS = 3600.0

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


@dataclass
class Exchange:
    """One answer: whether it was held to a schema, and what it was."""

    constrained: bool
    text: str
    stop_reason: str
    usage: Mapping[str, int]


@dataclass
class Shim:
    """A context manager; `url` is for ANTHROPIC_BASE_URL, and with `/v1` for OPENAI_BASE_URL."""

    model: str
    structured: bool
    exchanges: list[Exchange] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> "Shim":
        shim = self

        class Handler(_Handler):
            owner = shim

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answered(self, path: str, body: dict[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Status and body for a request."""
        form = (body.get("output_config") or {}).get("format")
        constrained = self.structured and form is not None and path == "/v1/messages"
        if constrained:
            status, completion = _post(f"{self.model}/v1/chat/completions", _as_completion(body, form["schema"]))
            reply = _as_message(completion) if status == 200 else completion
        else:
            status, reply = _post(self.model + path, body)
        if status == 200 and path == "/v1/messages":
            text = "".join(block.get("text", "") for block in reply["content"])
            self.exchanges.append(Exchange(constrained, text, reply["stop_reason"], reply["usage"]))
        if status == 200 and path == "/v1/chat/completions":
            message = _as_message(reply)
            asked = (body.get("response_format") or {}).get("type") == "json_schema"
            text = message["content"][0]["text"] or ""
            self.exchanges.append(Exchange(asked, text, message["stop_reason"], message["usage"]))
        return status, reply


def _as_completion(body: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    system = "\n\n".join(block["text"] for block in body.get("system", ()))
    turns = [{"role": "system", "content": system}] if system else []
    for message in body["messages"]:
        text = "\n\n".join(block["text"] for block in message["content"])
        turns.append({"role": message["role"], "content": text})
    return {
        "model": body["model"],
        "max_tokens": body["max_tokens"],
        "messages": turns,
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
    }


def _as_message(completion: Mapping[str, Any]) -> dict[str, Any]:
    (choice,) = completion["choices"]
    counted = completion["usage"]
    return {
        "id": completion["id"],
        "type": "message",
        "role": "assistant",
        "model": completion["model"],
        "content": [{"type": "text", "text": choice["message"]["content"]}],
        "stop_reason": _STOPS[choice["finish_reason"]],
        "stop_sequence": None,
        "usage": {"input_tokens": counted["prompt_tokens"], "output_tokens": counted["completion_tokens"]},
    }


def _post(url: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (OSError, http.client.HTTPException):
        return 502, {"error": {"message": "the model server is away"}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Shim

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, reply = self.owner.answered(self.path.partition("?")[0], body)
        payload = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the output."""
