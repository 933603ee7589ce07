"""A double of a server that speaks the Chat Completions API, for tests of the provider `openai`.

It speaks the wire format over a real socket, so the real SDK runs against it. It refuses requests that OpenAI's API
would refuse, and its errors have the form of OpenAI's or, by `raw`, of other servers. It is no model: what it answers
is scripted by the test.

    with ChatApi() as api:
        api.script(rate_limited(retry_after=0.01), answer({"write_operations": []}))
        ... AsyncOpenAI(base_url=api.url, api_key="any") ...
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runekeep_extractor.providers.probe import TOOL
from tests.doubles.model_api import CHARACTERS_PER_TOKEN, Behaviour, ModelApi, Request, Response, ids

_ROLES = {"system", "user", "assistant", "tool"}
_BOUNDS = frozenset({"minimum", "maximum", "minLength", "maxLength", "maxItems", "default", "oneOf", "title"})


class _Request(Request):
    @property
    def system_text(self) -> str:
        return "\n".join(one["content"] for one in self.body["messages"] if one["role"] == "system")

    @property
    def last_text(self) -> str:
        content = self.body["messages"][-1]["content"]
        return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def answer(what: object, *, finish_reason: str = "stop", **message: Any) -> Behaviour:
    """Answer with a text, or with an object as JSON; a function gets the request and makes either."""

    def behave(request: Request) -> Response:
        made = what(request) if callable(what) else what
        text = made if isinstance(made, str | None) else json.dumps(made, ensure_ascii=False)
        return _completion(request, {"role": "assistant", "content": text, "refusal": None, **message}, finish_reason)

    return behave


def tool_calls(*calls: tuple[str, object]) -> Behaviour:
    """Ask for tools, each by name and arguments; those that are no text become JSON."""

    def behave(request: Request) -> Response:
        made = [
            {
                "id": f"call_{next(ids):08}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for name, given in calls
        ]
        message = {"role": "assistant", "content": None, "tool_calls": made}
        return _completion(request, message, "tool_calls")

    return behave


def error(
    status: int,
    kind: str,
    message: str = "no",
    *,
    code: str | None = None,
    param: str | None = None,
    retry_after: float | None = None,
) -> Behaviour:
    """An error body as OpenAI gives it. `retry_after` in seconds goes into the header."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return lambda _: Response(status, body, headers)


def rate_limited(*, retry_after: float | None = None) -> Behaviour:
    """429."""
    return error(429, "requests", "Rate limit reached", code="rate_limit_exceeded", retry_after=retry_after)


class ChatApi(ModelApi):
    """The server; its URL is for OPENAI_BASE_URL.

    `structured_output`, `json_mode`, `tools`: False complains about them, None takes them in silence and does nothing.
    `bounds`: the same for bounds in a schema.
    `images`: False complains about them as OpenAI does. `limit`: the name of the answer's limit that it takes.
    `thinks`: tokens that its model thinks before it answers. `room`: tokens of its context that are left for an answer.
    `counts_usage`: whether answers say what they cost. `streams`: whether it streams when asked to; False complains,
    None ignores the wish.
    """

    request_class = _Request
    request_id_header = "x-request-id"
    calls_path = "/v1/chat/completions"

    def __init__(
        self,
        *,
        structured_output: bool | None = True,
        bounds: bool | None = False,
        json_mode: bool = True,
        tools: bool | None = True,
        images: bool = True,
        limit: str = "max_tokens",
        thinks: int = 0,
        room: int = 1 << 20,
        counts_usage: bool = True,
        streams: bool | None = None,
    ) -> None:
        super().__init__()
        self._structured_output = structured_output
        self._bounds = bounds
        self._json_mode = json_mode
        self._tools = tools
        self._images = images
        self._limit = limit
        self._thinks = thinks
        self._room = room
        self._counts_usage = counts_usage
        self._streams = streams

    @property
    def url(self) -> str:
        return f"{super().url}/v1"

    def respond(self, request: Request) -> Response:
        """What the double does with a request."""
        if request.path != self.calls_path:
            return error(404, "invalid_request_error", "Not found")(request)
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return error(401, "invalid_request_error", "You didn't provide an API key", code="invalid_api_key")(request)
        wrong = next(self._wrong(request.body), None)
        if wrong is not None:
            param, message = wrong
            return error(400, "invalid_request_error", message, param=param)(request)
        if request.is_probe and request.body[self._limit] <= self._thinks:
            return answer("", finish_reason="length")(request)
        behaviour = self._probed(request) if request.is_probe else self.scripted()
        if behaviour is None:
            return error(500, "server_error", "the test scripted no answer for this request")(request)
        response = behaviour(request)
        if not isinstance(response.body, Mapping) or "usage" not in response.body:
            return response
        if self._counts_usage:
            response = Response(200, {**response.body, "usage": self._usage(request, response.body)})
        if self._streams and request.body.get("stream"):
            return Response(events=[*_chunks(response.body)])
        return response

    def _wrong(self, body: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
        """What is wrong with a request: the parameter and the message."""
        for name in ("max_tokens", "max_completion_tokens"):
            if name in body and name != self._limit:
                yield (
                    name,
                    f"Unsupported parameter: '{name}' is not supported with this model. Use '{self._limit}' instead.",
                )
        form = body.get("response_format") or {}
        if form.get("type") == "json_schema":
            if self._structured_output is False:
                yield "response_format", "Invalid parameter: 'response_format' of type 'json_schema' is not supported."
            yield from _wrong_schema(form["json_schema"], takes_bounds=self._bounds is not False)
        if form.get("type") == "json_object":
            if not self._json_mode:
                yield None, "unknown field response_format: json mode is not there"
            if "json" not in json.dumps(body["messages"]).lower():
                yield "messages", "'messages' must contain the word 'json' in some form, to use 'json_object'."
        if "stream" in body and self._streams is False:
            yield "stream_options", "Extra inputs are not permitted"
        if "tools" in body and self._tools is False:
            yield "tools", "tools are not supported by this model"
        if "tool_choice" in body and "tools" not in body:
            yield "tool_choice", "'tool_choice' is only allowed when 'tools' are specified."
        yield from self._wrong_messages(body.get("messages") or [])

    def _wrong_messages(self, messages: list[Mapping[str, Any]]) -> Iterator[tuple[str | None, str]]:
        pending: list[str] = []
        for message in messages:
            if message["role"] not in _ROLES:
                yield "messages", f"Invalid role: {message['role']}"
            if message["role"] == "tool":
                if message["tool_call_id"] not in pending:
                    yield "messages", "messages with role 'tool' must be a response to a preceding message."
                pending.remove(message["tool_call_id"])
                continue
            if pending:
                yield "messages", "An assistant message with 'tool_calls' must be followed by tool messages."
            pending = [call["id"] for call in message.get("tool_calls") or ()]
            content = message["content"]
            if isinstance(content, list) and not self._images and any(part["type"] == "image_url" for part in content):
                yield None, "Invalid content type. image_url is only supported by certain models."
        if not messages or messages[-1]["role"] not in ("user", "tool"):
            yield "messages", "the last message must be of the user"

    def _probed(self, request: Request) -> Behaviour:
        form = (request.body.get("response_format") or {}).get("type")
        if form == "json_schema" and self._structured_output:
            counted = ["one", "two", "three", "four"]
            return answer({"number": 1, "words": counted[:2] if self._bounds else counted})
        if "tools" in request.body and self._tools:
            return tool_calls((TOOL.name, {"word": "tea"}))
        return answer("Hello!")

    def _usage(self, request: Request, completion: Mapping[str, Any]) -> dict[str, Any]:
        prompt = len(json.dumps(request.body)) // CHARACTERS_PER_TOKEN
        said = len(json.dumps(completion["choices"])) // CHARACTERS_PER_TOKEN + self._thinks
        if completion["choices"][0]["finish_reason"] == "length":
            said = min(request.body[self._limit], self._room)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": said,
            "total_tokens": prompt + said,
            "prompt_tokens_details": {"cached_tokens": prompt // 2},
            "completion_tokens_details": {"reasoning_tokens": self._thinks},
        }


def _wrong_schema(form: Mapping[str, Any], *, takes_bounds: bool) -> Iterator[tuple[str | None, str]]:
    """The limits of strict schemas, as OpenAI documents them."""
    if not form.get("name") or not form.get("strict"):
        yield "response_format", "Missing required parameter: 'response_format.json_schema.name'."
    for node in _nodes(form["schema"]):
        if _BOUNDS & node.keys() and not takes_bounds:
            yield "response_format", f"Invalid schema for response_format: {min(_BOUNDS & node.keys())}"
        if node.get("type") == "object":
            if node.get("additionalProperties") is not False:
                yield "response_format", "Invalid schema for response_format: 'additionalProperties' must be false."
            if set(node.get("required", ())) != set(node.get("properties", ())):
                yield "response_format", "Invalid schema for response_format: 'required' must include every key."


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    inner = [*schema.get("$defs", {}).values(), *schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for node in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from _nodes(node)


def _chunks(completion: Mapping[str, Any]) -> Iterator[bytes]:
    """The answer as the API streams it, texts and arguments in two pieces each."""
    (choice,) = completion["choices"]
    message = choice["message"]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    text = message["content"] or ""
    deltas += [{"content": piece} for piece in (text[: len(text) // 2], text[len(text) // 2 :])]
    for index, call in enumerate(message.get("tool_calls") or ()):
        said = call["function"]["arguments"]
        first = {**call, "index": index, "function": {**call["function"], "arguments": said[:3]}}
        deltas += [{"tool_calls": [first]}, {"tool_calls": [{"index": index, "function": {"arguments": said[3:]}}]}]
    for delta in deltas:
        yield _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _data({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield _data({**head, "choices": [], "usage": completion["usage"]})
    yield b"data: [DONE]\n\n"


def _data(chunk: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _completion(request: Request, message: Mapping[str, Any], finish_reason: str) -> Response:
    body = {
        "id": f"chatcmpl-{next(ids):08}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": request.body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {},
    }
    return Response(200, body)
