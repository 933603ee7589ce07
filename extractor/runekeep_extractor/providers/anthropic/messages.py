"""Speaks the Anthropic Messages API through its SDK."""

import json
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final

import anthropic
import anyio
import httpx2
from anthropic.types import Message

from runekeep.v1 import common_pb2
from runekeep_extractor.engine.interface import JobFailed, NotConfigured
from runekeep_extractor.prompts.json_schema import lean
from runekeep_extractor.prompts.reads import Tool
from runekeep_extractor.providers.errors import (
    NoAnswerInTime,
    ServerError,
    leave_long_waits,
    no_credentials,
    not_in_time,
    not_the_api,
    unreachable,
)
from runekeep_extractor.providers.features import Feature
from runekeep_extractor.providers.interface import (
    STREAMING,
    STRUCTURED_OUTPUT,
    TOOLS,
    Image,
    Question,
    Reply,
    Stop,
    ToolResult,
    ToolUse,
    Turn,
    arguments_of,
    pieces_of,
    streams,
)
from runekeep_extractor.settings import AnthropicSettings

_API: Final = "Messages API"
_ABOUT_FORMAT: Final = re.compile(r"output_config|output_format|json_schema|structured output")
_ABOUT_TOOLS: Final = re.compile(r"\btools?\b|tool_choice|input_schema")
_ABOUT_STREAMING: Final = re.compile(r"\bstream(ing)?\b")
# What an error amid a streamed answer would have had as its status.
_STATUSES: Final = {"overloaded_error": 529, "rate_limit_error": 429}
_TOOL_CHOICES: Final = {"none": "none", "required": "any"}
_STOPS: Final = {
    "tool_use": Stop.TOOLS,
    "max_tokens": Stop.TRUNCATED,
    "refusal": Stop.REFUSED,
    "model_context_window_exceeded": Stop.CONTEXT_FULL,
}


class MessagesProvider:
    """Implements `runekeep_extractor.providers.interface.Provider`. One connection pool to one server."""

    name = "anthropic"

    def __init__(self, settings: AnthropicSettings, max_retries: int) -> None:
        """Raises NotConfigured if the SDK finds no credentials."""
        self._settings = settings
        self._counts_tokens = True
        key = settings.api_key.get_secret_value() if settings.api_key is not None else None
        if key is None and settings.base_url is not None and "ANTHROPIC_AUTH_TOKEN" not in os.environ:
            # The SDK refuses to call without credentials, and a self-hosted server often needs none.
            key = "none"
        self._http = anthropic.DefaultAsyncHttpxClient(
            timeout=settings.timeout, event_hooks={"response": [leave_long_waits]}
        )
        self._client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=settings.base_url,
            timeout=settings.timeout,
            max_retries=max_retries,
            http_client=self._http,
            middleware=[_raise_no_answer],
            # The SDK's own spans would contain the conversation if the environment enables it, and a third-party model
            # server must not see the trace ids. `telemetry` records the calls.
            open_telemetry={"traces": False, "propagation": False},
        )
        self.base_url = str(self._client.base_url)
        # The features of Anthropic's own API are known; there a feature is given up only after an error about it.
        self._probes = self._client.base_url.host != "api.anthropic.com"
        if self._client.api_key is None and self._client.auth_token is None and self._client.credentials is None:
            # Raised now: the SDK would only find out at each call, when a job would fail by it.
            raise NotConfigured("the engine `anthropic` needs ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL")

    def features(self) -> Mapping[str, Feature]:
        """See `Provider`."""
        settings = self._settings
        return {
            STRUCTURED_OUTPUT: Feature(
                STRUCTURED_OUTPUT, settings.structured_output, _ABOUT_FORMAT, probed=self._probes
            ),
            TOOLS: Feature(TOOLS, settings.tools, _ABOUT_TOOLS, probed=self._probes),
            STREAMING: Feature(STREAMING, "auto", _ABOUT_STREAMING, probed=False),
        }

    def schema(self, schema: Mapping[str, Any], *, bounded: bool) -> Mapping[str, Any]:
        """See `Provider`. The API takes no bounds."""
        return _sent(json.dumps(schema))

    def request(self, question: Question, features: Collection[str]) -> dict[str, Any]:
        """See `Provider`."""
        request: dict[str, Any] = {
            "model": question.model,
            "max_tokens": question.max_tokens,
            "messages": [_message(turn) for turn in question.turns],
        }
        if question.system:
            blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in question.system]
            blocks[-1]["cache_control"] = {"type": "ephemeral"}
            request["system"] = blocks
        if STRUCTURED_OUTPUT in features:
            request["output_config"] = {"format": {"type": "json_schema", "schema": question.schema}}
        if STREAMING in features:
            request["stream"] = True
        if TOOLS in features:
            request["tools"] = [to_tool_param(tool) for tool in question.tools]
            if question.tool_choice != "auto":
                request["tool_choice"] = {"type": _TOOL_CHOICES[question.tool_choice]}
        return request

    def with_max_tokens(self, request: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
        """See `Provider`."""
        return {**request, "max_tokens": max_tokens}

    async def send(self, request: Mapping[str, Any], heard: Callable[[], None]) -> Reply:
        """See `Provider`."""
        try:
            message = await self._client.messages.create(**request)
            if isinstance(message, anthropic.AsyncStream):
                message = await _whole(message, heard, self._settings.timeout)
        except anthropic.APIStatusError as error:
            raise _server_error(error) from error
        except anthropic.AnthropicError as error:
            raise self._failure_of(error) from error
        except httpx2.TimeoutException:
            raise NoAnswerInTime from None
        except (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream) as error:
            # The HTTP client leaves some errors of TLS as they are.
            raise unreachable() from error
        except (AttributeError, TypeError, ValueError):
            # The SDK validates nothing. The cause is omitted, because it holds the response's text.
            raise not_the_api(_API) from None
        return _read(message, request["model"])

    async def count(self, request: Mapping[str, Any]) -> int | None:
        """See `Provider`."""
        if not self._counts_tokens:
            return None
        asked = {name: value for name, value in request.items() if name not in ("max_tokens", "stream")}
        try:
            counted = await self._client.with_options(max_retries=0).messages.count_tokens(**asked)
        except anthropic.APIStatusError as error:
            # These codes mean that the endpoint is missing; other errors may be temporary.
            self._counts_tokens = error.status_code not in (404, 405, 501)
            return None
        except (anthropic.AnthropicError, json.JSONDecodeError, NoAnswerInTime):
            return None
        tokens = getattr(counted, "input_tokens", None)
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    async def close(self) -> None:
        """See `Provider`."""
        await self._client.close()

    def _failure_of(self, error: Exception) -> JobFailed:
        """Returns the failure for an SDK error without a status."""
        if isinstance(error, anthropic.APITimeoutError):
            return not_in_time()
        if isinstance(error, anthropic.APIConnectionError):
            return unreachable()
        if isinstance(error, anthropic.APIError):
            return not_the_api(_API)
        return no_credentials(error)


@lru_cache(maxsize=64)
def _sent(schema: str) -> Mapping[str, Any]:
    """Returns a JSON schema in the form in which it is sent. Cached, because there are few and each takes
    milliseconds.
    """
    return lean(anthropic.transform_schema(json.loads(schema)))


def _message(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, Reply):
        return {"role": "assistant", "content": turn.message}
    return {"role": "user", "content": [_block(part) for part in turn.parts]}


def _block(part: str | Image | ToolResult) -> dict[str, Any]:
    match part:
        case str():
            return {"type": "text", "text": part}
        case Image(url=url) if url:
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Image():
            return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
        case ToolResult():
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.id, "content": part.text}
            return result | {"is_error": True} if part.failed else result


def to_tool_param(tool: Tool) -> dict[str, Any]:
    """Returns a tool in the form of the Messages API."""
    made = {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
    return made | {"strict": True} if tool.strict else made


async def _whole(stream: anthropic.AsyncStream[Any], heard: Callable[[], None], timeout: float) -> Message:
    """Returns the message of a streamed answer. Raises ValueError if it is none, NoAnswerInTime if a piece takes longer
    than `timeout` seconds, and what the SDK and its HTTP client raise for errors amid it.
    """
    if not streams(stream.response):
        body = json.loads(await stream.response.aread())
        return Message.construct(**(body if isinstance(body, dict) else {}))
    heard()
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    arguments: dict[int, str] = {}
    async for event in pieces_of(stream, timeout):
        heard()
        told = event.to_dict(mode="json", warnings=False)
        index, delta = told.get("index", 0), told.get("delta") or {}
        match told.get("type"):
            case "message_start":
                message |= told.get("message") or {}
            case "content_block_start":
                blocks[index] = told.get("content_block") or {}
            case "content_block_delta":
                block = blocks.setdefault(index, {"type": "text"})
                for key in ("text", "thinking", "signature"):
                    if isinstance(delta.get(key), str):
                        block[key] = (block.get(key) or "") + delta[key]
                arguments[index] = arguments.get(index, "") + (delta.get("partial_json") or "")
            case "message_delta":
                message |= delta
                counted = {name: count for name, count in (told.get("usage") or {}).items() if count is not None}
                message["usage"] = {**(message.get("usage") or {}), **counted}
    if not message.get("stop_reason"):
        raise httpx2.RemoteProtocolError("the answer ended early")
    for index, text in arguments.items():
        if blocks[index].get("type") == "tool_use" and text:
            blocks[index]["input"] = arguments_of(text)
    return Message.construct(**{**message, "content": [blocks[index] for index in sorted(blocks)]})


def _read(message: Message, asked_model: str) -> Reply:
    """Returns the parsed answer. Raises JobFailed if it is none of the Messages API.

    It trusts nothing in it, because the SDK does not validate responses and many servers only resemble the API.
    """
    blocks = getattr(message, "content", None)
    if not isinstance(blocks, list):
        raise not_the_api(_API)
    # As the JSON that was received.
    content = [block.to_dict(mode="json", warnings=False) if hasattr(block, "to_dict") else block for block in blocks]
    known = [block for block in content if isinstance(block, Mapping)]
    uses = [
        ToolUse(str(block.get("id")), str(block.get("name")), block.get("input"))
        for block in known
        if block.get("type") == "tool_use"
    ]
    reason = str(message.stop_reason or "")
    return Reply(
        text="".join(
            block["text"] for block in known if block.get("type") == "text" and isinstance(block.get("text"), str)
        ),
        tool_uses=tuple(uses),
        message=[_echoed(block) for block in content],
        stop=_STOPS.get(reason, Stop.FINISHED),
        stop_reason=reason,
        model=str(message.model or asked_model),
        usage=common_pb2.TokenUsage(
            input_tokens=_count(message, "input_tokens"),
            cache_write_tokens=_count(message, "cache_creation_input_tokens"),
            cache_read_tokens=_count(message, "cache_read_input_tokens"),
            output_tokens=_count(message, "output_tokens"),
        ),
        refusal_category=getattr(message.stop_details, "category", None),
    )


def _echoed(block: object) -> object:
    """Returns a block in the form in which it is sent back: the API refuses a tool use whose input is no object."""
    if isinstance(block, Mapping) and block.get("type") == "tool_use" and not isinstance(block.get("input"), Mapping):
        return {**block, "input": {}}
    return block


def _count(message: Message, name: str) -> int:
    value = getattr(message.usage, name, None)
    return value if isinstance(value, int) and value > 0 else 0


def _server_error(error: anthropic.APIStatusError) -> ServerError:
    body = error.body if isinstance(error.body, Mapping) else {}
    told = body.get("error")
    message = _text(error.api_message)
    kind = _text(error.type)
    return ServerError(
        status=error.status_code if error.status_code >= 400 else _STATUSES.get(kind, 502),
        type=kind,
        code=_text(error.error_code),
        parameter=_text(told.get("param")) if isinstance(told, Mapping) else "",
        message=message,
        text=f"{message} {error.message}".lower(),
        request_id=error.request_id or "",
        headers=error.response.headers,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


async def _raise_no_answer(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Keeps the SDK from repeating a timed-out call uncounted. A call that had not begun costs nothing."""
    try:
        return await call_next(request)
    except anthropic.APITimeoutError as error:
        if isinstance(error.__cause__, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            raise
        raise NoAnswerInTime from None
