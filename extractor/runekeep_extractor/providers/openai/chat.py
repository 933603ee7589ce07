"""Speaks the Chat Completions API of OpenAI, and of the many servers that resemble it, through OpenAI's SDK."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import httpx2
import openai

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
    BOUNDS,
    JSON_MODE,
    MAX_TOKENS,
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
    UserTurn,
    arguments_of,
    pieces_of,
    streams,
)
from runekeep_extractor.settings import OpenAISettings

_API: Final = "Chat Completions API"
_OWN_HOST: Final = "api.openai.com"
_ABOUT_FORMAT: Final = re.compile(r"response_format|json_schema|structured output|guided|grammar")
_ABOUT_BOUNDS: Final = re.compile(rf"{_ABOUT_FORMAT.pattern}|schema|max_?(length|items)|repetition")
_ABOUT_JSON: Final = re.compile(r"response_format|json_object|json mode")
_ABOUT_TOOLS: Final = re.compile(r"\btools?\b|tool_choice|\bfunctions?\b")
_ABOUT_STREAMING: Final = re.compile(r"\bstream(ing|_options)?\b")
_ABOUT_LIMIT: Final = re.compile(r"\bmax_tokens\b")
# An error may also say that the value of `max_tokens` is too large.
_SAYS_UNKNOWN: Final = re.compile(r"\bmax_completion_tokens\b|unsupported_parameter")
_STOPS: Final = {
    "tool_calls": Stop.TOOLS,
    "length": Stop.TRUNCATED,
    "content_filter": Stop.REFUSED,
}
# Some servers leave the thoughts of a reasoning model in its answer.
_THOUGHTS: Final = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


class ChatProvider:
    """Implements `runekeep_extractor.providers.interface.Provider`. One connection pool to one server."""

    name = "openai"

    def __init__(self, settings: OpenAISettings, max_retries: int) -> None:
        """Raises NotConfigured if the model, or both key and address, are missing."""
        if not settings.model:
            raise NotConfigured("the engine `openai` needs RUNEKEEP_EXTRACTOR_MODEL, the model's name at the server")
        if not settings.configured:
            raise NotConfigured("the engine `openai` needs OPENAI_API_KEY, or OPENAI_BASE_URL")
        self._settings = settings
        self._http = _HttpClient(timeout=settings.timeout, event_hooks={"response": [leave_long_waits]})
        self._client = openai.AsyncOpenAI(
            # The SDK refuses to call without a key, and a self-hosted server often needs none.
            api_key=settings.api_key.get_secret_value() if settings.api_key is not None else "none",
            base_url=settings.base_url,
            timeout=settings.timeout,
            max_retries=max_retries,
            http_client=self._http,
        )
        self.base_url = str(self._client.base_url)
        # The features of OpenAI's own API are known; there a feature is given up only after an error about it.
        self._own = self._client.base_url.host == _OWN_HOST

    def features(self) -> Mapping[str, Feature]:
        """See `Provider`."""
        form, tools = self._settings.structured_output, self._settings.tools
        # OpenAI's reasoning models refuse `max_tokens`. Some other servers do not know `max_completion_tokens` and
        # ignore it, so that an answer would have no limit; so they get it only after an error about `max_tokens`.
        others: dict[str, Feature] = {}
        if not self._own:
            others[MAX_TOKENS] = Feature(MAX_TOKENS, "auto", _ABOUT_LIMIT, wording=_SAYS_UNKNOWN, probed=False)
            # Before structured output, because an error about the schema may mean its bounds alone. llama.cpp and
            # others keep to them; OpenAI's own models do not repeat themselves without end.
            others[BOUNDS] = Feature(BOUNDS, "auto", _ABOUT_BOUNDS, probed=True)
        return {
            **others,
            STRUCTURED_OUTPUT: Feature(STRUCTURED_OUTPUT, form, _ABOUT_FORMAT, probed=not self._own),
            # Sent without a probe: a server that ignores it does no harm, since words describe the answer too.
            JSON_MODE: Feature(JSON_MODE, form, _ABOUT_JSON, probed=False),
            TOOLS: Feature(TOOLS, tools, _ABOUT_TOOLS, probed=not self._own),
            STREAMING: Feature(STREAMING, "auto", _ABOUT_STREAMING, probed=False),
        }

    def schema(self, schema: Mapping[str, Any], *, bounded: bool) -> Mapping[str, Any]:
        """See `Provider`."""
        return _strict(json.dumps(schema), bounded=bounded)

    def request(self, question: Question, features: Collection[str]) -> dict[str, Any]:
        """See `Provider`."""
        # Templates of many models take one system message only, and texts instead of lists of parts.
        system = [{"role": "system", "content": "\n\n".join(question.system)}] if question.system else []
        request: dict[str, Any] = {
            "model": question.model,
            "messages": [*system, *(message for turn in question.turns for message in _messages(turn))],
            "max_tokens" if MAX_TOKENS in features else "max_completion_tokens": question.max_tokens,
        }
        if STRUCTURED_OUTPUT in features and question.schema is not None:
            held_to = lean(question.schema) if question.bounded and BOUNDS not in features else question.schema
            form = {"name": "answer", "strict": True, "schema": held_to}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        elif JSON_MODE in features:
            request["response_format"] = {"type": "json_object"}
        if STREAMING in features:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        if TOOLS in features:
            request["tools"] = [_tool(tool) for tool in question.tools]
            if question.tool_choice != "auto":
                request["tool_choice"] = question.tool_choice
        return request

    def with_max_tokens(self, request: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
        """See `Provider`."""
        return {**request, "max_tokens" if "max_tokens" in request else "max_completion_tokens": max_tokens}

    async def send(self, request: Mapping[str, Any], heard: Callable[[], None]) -> Reply:
        """See `Provider`."""
        try:
            # Read below, because the SDK does not validate responses and many servers only resemble the API.
            if request.get("stream"):
                body, headers = await self._streamed(request, heard)
            else:
                response = await self._client.chat.completions.with_raw_response.create(**request)
                body, headers = json.loads(response.text), response.headers
        except openai.APIStatusError as error:
            raise _error_of(error.body, error.status_code, error.response.headers) from error
        except openai.OpenAIError as error:
            raise _failure_of(error) from error
        except (AttributeError, TypeError, ValueError):
            # The SDK validates nothing. The cause is omitted, because it holds the response's text.
            raise not_the_api(_API) from None
        return _read(body, request["model"], headers)

    async def _streamed(
        self, request: Mapping[str, Any], heard: Callable[[], None]
    ) -> tuple[object, Mapping[str, str]]:
        """Returns the body of a streamed answer, as it would be without streaming, and the headers."""
        stream = await self._client.chat.completions.create(**request)
        headers = stream.response.headers
        if not streams(stream.response):
            return json.loads(await stream.response.aread()), headers
        heard()
        try:
            return await _whole(stream, heard, self._settings.timeout), headers
        except openai.APITimeoutError:
            raise NoAnswerInTime from None
        except openai.APIConnectionError:
            raise
        except openai.APIError as error:
            # An error amid the answer has no status of its own.
            raise _error_of(error.body, _status_in(error.body), headers) from error

    async def count(self, request: Mapping[str, Any]) -> int | None:
        """Returns None: the API counts no tokens ahead."""
        return None

    async def close(self) -> None:
        """See `Provider`."""
        await self._client.close()


class _HttpClient(openai.DefaultAsyncHttpxClient):
    """Keeps the SDK from repeating a timed-out call uncounted. A call that had not begun costs nothing."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except (httpx2.ConnectTimeout, httpx2.PoolTimeout):
            raise
        except httpx2.TimeoutException:
            raise NoAnswerInTime from None


@lru_cache(maxsize=64)
def _strict(schema: str, *, bounded: bool) -> Mapping[str, Any]:
    """Returns a JSON schema in the form in which it is sent: objects closed, and no bounds unless it is `bounded`.
    Cached, because there are few and each takes milliseconds. All properties are required already.
    """
    closed: dict[str, Any] = _closed(lean(json.loads(schema), bounded=bounded))
    return closed


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: _closed(value) for key, value in node.items()}
    return made | {"additionalProperties": False} if node.get("type") == "object" else made


def _messages(turn: Turn) -> Iterator[dict[str, Any]]:
    if isinstance(turn, Reply):
        yield turn.message
        return
    for part in turn.parts:
        if isinstance(part, ToolResult):
            yield {"role": "tool", "tool_call_id": part.id, "content": part.text}
    texts = [part for part in turn.parts if isinstance(part, str)]
    if any(isinstance(part, Image) for part in turn.parts):
        yield {"role": "user", "content": list(_parts(turn))}
    elif texts:
        yield {"role": "user", "content": "\n\n".join(texts)}


def _parts(turn: UserTurn) -> Iterator[dict[str, Any]]:
    for part in turn.parts:
        match part:
            case str():
                yield {"type": "text", "text": part}
            case Image():
                url = part.url or f"data:{part.media_type};base64,{part.data}"
                yield {"type": "image_url", "image_url": {"url": url}}


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function | ({"strict": True} if tool.strict else {})}


async def _whole(stream: Any, heard: Callable[[], None], timeout: float) -> dict[str, Any]:
    """Returns the completion whose chunks a stream brings. Raises NoAnswerInTime if one takes longer than `timeout`
    seconds, and what the SDK raises for errors amid it.
    """
    whole: dict[str, Any] = {}
    texts = {"content": "", "refusal": ""}
    calls: list[dict[str, Any]] = []
    by_index: dict[int, dict[str, Any]] = {}
    reason = ""
    async for chunk in pieces_of(stream, timeout):
        heard()
        told = chunk.to_dict(mode="json", warnings=False)
        # The last chunk may bring the usage alone.
        whole |= {name: told[name] for name in ("model", "usage") if told.get(name)}
        for choice in _list(told.get("choices"))[:1]:
            delta = choice.get("delta") or {}
            reason = _text(choice.get("finish_reason")) or reason
            for name in texts:
                texts[name] += _content(delta.get(name))
            for part in _list(delta.get("tool_calls")):
                index, id = part.get("index") or 0, part.get("id")
                call = by_index.get(index)
                # Some servers give all calls the index 0.
                if call is None or (id and call.get("id", id) != id):
                    call = by_index[index] = {"type": "function", "function": {"arguments": ""}}
                    calls.append(call)
                function = part.get("function") or {}
                call["function"]["arguments"] += _text(function.get("arguments"))
                call["function"] |= {key: value for key, value in function.items() if value and key != "arguments"}
                # Some servers need further keys back, such as the signature of a thought.
                call |= {key: value for key, value in part.items() if value and key not in ("index", "function")}
    if not reason:
        raise openai.APIConnectionError(message="The answer ended early.", request=stream.response.request)
    message = texts | ({"tool_calls": calls} if calls else {})
    return whole | {"choices": [{"message": message, "finish_reason": reason}]}


def _read(body: object, asked_model: str, headers: Mapping[str, str]) -> Reply:
    """Returns the parsed answer. Raises JobFailed if it is none of the API, and ServerError if it is an error that came
    with the status 200, as gateways send it when the server behind them fails.
    """
    if not isinstance(body, Mapping):
        raise not_the_api(_API)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    for told in (body.get("error"), choice.get("error")):
        if told:
            raise _error_of(told, _status_in(told), headers)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise not_the_api(_API)
    calls = [call for call in _list(message.get("tool_calls")) if isinstance(call, Mapping)]
    uses = tuple(_tool_use(call, number) for number, call in enumerate(calls))
    text = _THOUGHTS.sub("", _content(message.get("content")))
    reason = _text(choice.get("finish_reason"))
    echo: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        echo["tool_calls"] = [{**call, "id": use.id} for call, use in zip(calls, uses, strict=True)]
    return Reply(
        text=text,
        tool_uses=uses,
        message=echo,
        stop=Stop.REFUSED if _text(message.get("refusal")) else _STOPS.get(reason, Stop.FINISHED),
        stop_reason=reason,
        model=_text(body.get("model")) or asked_model,
        usage=_usage(body.get("usage")),
    )


def _tool_use(call: Mapping[str, Any], number: int) -> ToolUse:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = arguments_of(arguments)
    return ToolUse(_text(call.get("id")) or f"call_{number}", _text(function.get("name")), arguments)


def _content(content: object) -> str:
    """Returns the text of an answer; some servers give it in parts."""
    parts = [_text(part.get("text")) for part in _list(content) if isinstance(part, Mapping)]
    return _text(content) or "".join(parts)


def _usage(usage: object) -> common_pb2.TokenUsage:
    usage = usage if isinstance(usage, Mapping) else {}
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    read, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    return common_pb2.TokenUsage(
        # The prompt's tokens include those of the cache.
        input_tokens=max(_count(usage, "prompt_tokens") - read - written, 0),
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=_count(usage, "completion_tokens"),
    )


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _failure_of(error: openai.OpenAIError) -> JobFailed:
    """Returns the failure for an SDK error without a status."""
    match error:
        case openai.APITimeoutError():
            return not_in_time()
        case openai.APIConnectionError():
            return unreachable()
        case openai.APIError():
            return not_the_api(_API)
    return no_credentials(error)


def _error_of(told: object, status: int, headers: Mapping[str, str]) -> ServerError:
    """Returns the error of an answer. `told`: an object with `message`, `type`, `param` and `code`, as OpenAI gives it,
    or a text or anything else, as others do.
    """
    fields = told if isinstance(told, Mapping) else {"message": told}
    code = _text(fields.get("code"))
    message = _text(fields.get("message"))
    return ServerError(
        status=status,
        type=_text(fields.get("type")),
        code="" if code == str(status) else code,
        parameter=_text(fields.get("param")),
        message=message,
        text=f"{message} {code}".lower(),
        request_id=headers.get("x-request-id", ""),
        headers=headers,
    )


def _status_in(told: object) -> int:
    """Returns the status that an error names as its code; 502 if it names none."""
    code = told.get("code") if isinstance(told, Mapping) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
