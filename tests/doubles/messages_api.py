"""A double of a server that speaks the Anthropic Messages API, for tests of everything that calls one.

It speaks the real wire format over a real socket, so the real SDK runs against it, in this process or in another one
that gets its address in ANTHROPIC_BASE_URL. It refuses requests that the real API would refuse. It is no model: what
it answers is scripted by the test, request by request.

    with MessagesApi() as api:
        api.script(overloaded(retry_after=0.01), answer({"write_operations": []}))
        api.otherwise = answer(lambda request: {...})
        ... AsyncAnthropic(base_url=api.url, api_key="any") ...
        assert len(api.requests) == 2
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runekeep_extractor.providers.probe import TOOL
from tests.doubles.messages_api_rules import complaint
from tests.doubles.model_api import (
    CHARACTERS_PER_TOKEN,
    Behaviour,
    Gate,
    ModelApi,
    Request,
    Response,
    held,
    ids,
    raw,
    reset,
)

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "Behaviour",
    "Gate",
    "MessagesApi",
    "Request",
    "Response",
    "answer",
    "error",
    "held",
    "overloaded",
    "rate_limited",
    "raw",
    "refusal",
    "reset",
    "tool_use",
    "truncated",
]


class MessagesRequest(Request):
    @property
    def system_text(self) -> str:
        system = self.body.get("system", "")
        return system if isinstance(system, str) else "\n".join(block["text"] for block in system)

    @property
    def last_text(self) -> str:
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        return "\n".join(str(block.get("text") or block.get("content") or "") for block in content)


def answer(what: object, *, stop_reason: str = "end_turn") -> Behaviour:
    """Answer with a text, or with an object as JSON; a function gets the request and makes either."""

    def behave(request: Request) -> Response:
        made = what(request) if callable(what) else what
        text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)
        return _message(request, [{"type": "text", "text": text}], stop_reason)

    return behave


def tool_use(*calls: tuple[str, Mapping[str, Any]]) -> Behaviour:
    """Ask for tools, each by name and input."""

    def behave(request: Request) -> Response:
        blocks = [
            {"type": "tool_use", "id": f"toolu_{next(ids):08}", "name": name, "input": arguments}
            for name, arguments in calls
        ]
        return _message(request, [{"type": "text", "text": "I look first."}, *blocks], "tool_use")

    return behave


def truncated(text: str = '{"reasoning": "It began well') -> Behaviour:
    """An answer that ran into max_tokens."""
    return answer(text, stop_reason="max_tokens")


def refusal(category: str | None = None) -> Behaviour:
    """The model refuses."""

    def behave(request: Request) -> Response:
        details = {"type": "refusal", "category": category, "explanation": None}
        return _message(request, [], "refusal", stop_details=details)

    return behave


def error(status: int, kind: str, message: str = "no", *, retry_after: float | None = None) -> Behaviour:
    """An error body of the API. `retry_after` in seconds goes into the header."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}

    def behave(_: Request) -> Response:
        body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{next(ids):08}"}
        return Response(status, body, headers)

    return behave


def overloaded(*, retry_after: float | None = None) -> Behaviour:
    """529."""
    return error(529, "overloaded_error", "Overloaded", retry_after=retry_after)


def rate_limited(*, retry_after: float | None = None) -> Behaviour:
    """429."""
    return error(429, "rate_limit_error", "Number of request tokens has exceeded your limit", retry_after=retry_after)


class MessagesApi(ModelApi):
    """The server; its URL is for ANTHROPIC_BASE_URL.

    `structured_output`, `tools`: False complains about them, None takes them in silence and does nothing. `images`:
    False complains about them as llama.cpp does. `counts_tokens`: whether there is count_tokens; `counts_usage`:
    whether answers say what they cost. `streams`: whether it streams when asked to; else it ignores the wish.
    `system_messages`: whether messages of the role `system` may stand between the others, as Claude Code sends them.
    """

    request_class = MessagesRequest
    request_id_header = "request-id"
    calls_path = "/v1/messages"

    def __init__(
        self,
        *,
        structured_output: bool | None = True,
        tools: bool | None = True,
        images: bool = True,
        counts_tokens: bool = True,
        counts_usage: bool = True,
        streams: bool = False,
        system_messages: bool = False,
    ) -> None:
        super().__init__()
        self._structured_output = structured_output
        self._tools = tools
        self._images = images
        self._counts_tokens = counts_tokens
        self._counts_usage = counts_usage
        self._streams = streams
        self._system_messages = system_messages
        self._cached: set[str] = set()

    def respond(self, request: Request) -> Response:
        """What the double does with a request."""
        body = request.body
        if self._system_messages:
            body = {**body, "messages": [one for one in body["messages"] if one["role"] != "system"]}
        wrong = complaint(
            request.path,
            request.headers,
            body,
            structured_output=self._structured_output is not False,
            tools=self._tools is not False,
        )
        if wrong is not None:
            status, kind, message = wrong
            return error(status, kind, message)(request)
        if not self._images and '"type": "image"' in request.prompt_text:
            hint = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
            return error(500, "server_error", hint)(request)
        if request.path == "/v1/messages/count_tokens":
            if not self._counts_tokens:
                return error(404, "not_found_error", "Not found")(request)
            return Response(200, {"input_tokens": len(json.dumps(request.body)) // CHARACTERS_PER_TOKEN})
        behaviour = self._probed(request) if request.is_probe else self.scripted()
        if behaviour is None:
            return error(500, "api_error", "the test scripted no answer for this request")(request)
        response = behaviour(request)
        if not isinstance(response.body, Mapping) or "usage" not in response.body:
            return response
        if self._counts_usage:
            response = Response(200, {**response.body, "usage": self._usage(request, response.body)})
        if self._streams and request.body.get("stream"):
            return Response(events=[*_events(response.body)])
        return response

    def _probed(self, request: Request) -> Behaviour:
        if "output_config" in request.body and self._structured_output:
            return answer({"number": 1})
        if "tools" in request.body and self._tools:
            return tool_use((TOOL.name, {"word": "tea"}))
        return answer("Hello!")

    def _usage(self, request: Request, message: Mapping[str, Any]) -> dict[str, int]:
        """Tokens, with a cache of the marked prefix as the real API keeps it: tools, then system."""
        whole = len(json.dumps(request.body["messages"]))
        prefix = json.dumps([request.body.get("tools"), request.body.get("system")], sort_keys=True)
        tokens = len(prefix) // CHARACTERS_PER_TOKEN
        marked = '"cache_control"' in prefix
        with self._lock:
            hit = marked and prefix in self._cached
            if marked:
                self._cached.add(prefix)
        return {
            "input_tokens": whole // CHARACTERS_PER_TOKEN + (0 if marked else tokens),
            "cache_creation_input_tokens": tokens if marked and not hit else 0,
            "cache_read_input_tokens": tokens if hit else 0,
            "output_tokens": request.body["max_tokens"]
            if message["stop_reason"] == "max_tokens"
            else len(json.dumps(message["content"])) // CHARACTERS_PER_TOKEN + 1,
        }


def _events(message: Mapping[str, Any]) -> Iterator[bytes]:
    """The answer as the API streams it, texts and arguments in two pieces each."""
    usage = message["usage"]
    yield _event({"type": "message_start", "message": {**message, "content": [], "stop_reason": None}})
    for index, block in enumerate(message["content"]):
        text = block.get("text", "") or json.dumps(block.get("input"))
        empty = {**block, **({"text": ""} if block["type"] == "text" else {"input": {}})}
        yield _event({"type": "content_block_start", "index": index, "content_block": empty})
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            kind, key = ("text_delta", "text") if block["type"] == "text" else ("input_json_delta", "partial_json")
            yield _event({"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}})
        yield _event({"type": "content_block_stop", "index": index})
    ended = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    counted = {"output_tokens": usage["output_tokens"]} if usage else {}
    yield _event({"type": "message_delta", "delta": ended, "usage": counted})
    yield _event({"type": "message_stop"})


def _event(data: Mapping[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def _message(
    request: Request, content: list[dict[str, Any]], stop_reason: str, *, stop_details: Mapping[str, Any] | None = None
) -> Response:
    body = {
        "id": f"msg_{next(ids):08}",
        "type": "message",
        "role": "assistant",
        "model": request.body["model"],
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": stop_details,
        "usage": {},
    }
    return Response(200, body)
