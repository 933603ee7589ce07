"""Calls of the Messages API: one place for the SDK, for what a server turns out to support, and for its errors."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from extractor.anthropic_engine.failures import from_sdk_error, not_the_api, retry_after, text_of
from extractor.anthropic_engine.outage import LONGEST_WAIT, Outage
from extractor.anthropic_engine.reads import tool_definitions
from extractor.engine import NotConfigured
from extractor.settings import AnthropicSettings, Switch

if TYPE_CHECKING:
    import httpx2
    from anthropic.types import Message, Usage

_UNSUPPORTED: Final = (400, 422)
_ABOUT_FORMAT = re.compile(r"output_config|output_format|json_schema|structured output")
_ABOUT_TOOLS = re.compile(r"\btools?\b|tool_choice|input_schema")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A read that the model asks for."""

    id: str
    name: str
    input: object


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back of one call. `content` goes back to the server unchanged when the dialogue goes on."""

    text: str
    tool_uses: tuple[ToolUse, ...]
    content: list[Any]
    stop_reason: str
    refusal_category: str | None
    model: str
    usage: "Usage | None"


class _Feature:
    """Something that a server may not support. `auto` holds until a server complains, then stays off."""

    def __init__(self, name: str, setting: Switch, complaint: re.Pattern[str]) -> None:
        self.name = name
        self.wanted = setting != "off"
        self._complaint = complaint
        self._fixed = setting != "auto"

    def gives_way(self, words: str) -> bool:
        """Switch off if the server's complaint is about this and the setting allows it."""
        if self._fixed or not self.wanted or not self._complaint.search(words):
            return False
        self.wanted = False
        _log.warning("model_server_lacks_feature", feature=self.name)
        return True


class MessagesClient:
    """One connection pool to one server. Safe for calls side by side."""

    def __init__(self, settings: AnthropicSettings, max_retries: int) -> None:
        """Raises NotConfigured where the SDK finds no credentials at all."""
        # Takes more than a second, and only this engine needs it.
        import anthropic

        self.outage = Outage()
        self._sdk = anthropic
        self._model = settings.model
        self._structured = _Feature("structured_output", settings.structured_output, _ABOUT_FORMAT)
        self._tools = _Feature("tools", settings.tools, _ABOUT_TOOLS)
        self._definitions = tool_definitions(anthropic.transform_schema)
        key = settings.api_key.get_secret_value() if settings.api_key is not None else None
        if key is None and settings.base_url is not None and "ANTHROPIC_AUTH_TOKEN" not in os.environ:
            # The SDK refuses to call without credentials, and a server of one's own often needs none.
            key = "none"
        self._http = anthropic.DefaultAsyncHttpxClient(
            timeout=settings.timeout, event_hooks={"response": [_leave_long_waits]}
        )
        self._client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=settings.base_url,
            timeout=settings.timeout,
            max_retries=max_retries,
            http_client=self._http,
        )
        if self._client.api_key is None and self._client.auth_token is None and self._client.credentials is None:
            # Said now: the SDK finds out with each call, when there is a job that would fail by it.
            raise NotConfigured("the engine `anthropic` needs ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL")

    async def ask(
        self,
        system: Sequence[str],
        messages: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        may_read: bool,
        give_up_at: float,
    ) -> Reply:
        """The server's answer; until `give_up_at`, a time of the loop, an outage is waited out.

        `may_read` False keeps the tools in the prompt, for its cache, but forbids their use. Raises JobFailed when the
        server gives no answer of the Messages API.
        """
        return await self.outage.call(lambda: self._ask(system, messages, schema, max_tokens, may_read), give_up_at)

    async def _ask(
        self,
        system: Sequence[str],
        messages: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any],
        max_tokens: int,
        may_read: bool,
    ) -> Reply:
        while True:
            request = self._request(system, messages, schema, max_tokens, may_read)
            try:
                return _reply(await self._client.messages.create(**request))
            except self._sdk.AnthropicError as error:
                if not self._falls_back(error, request):
                    raise from_sdk_error(error) from error
            except json.JSONDecodeError:
                # The SDK lets it through. Without the cause, which holds the response's text.
                raise not_the_api() from None

    async def close(self) -> None:
        """Give back the connections."""
        await self._client.close()

    def _request(
        self,
        system: Sequence[str],
        messages: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any],
        max_tokens: int,
        may_read: bool,
    ) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in system]
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
        request: dict[str, Any] = {
            "model": self._model,
            "max_tokens": max_tokens,
            "system": blocks,
            "messages": list(messages),
        }
        if self._structured.wanted:
            request["output_config"] = {
                "format": {"type": "json_schema", "schema": self._sdk.transform_schema(dict(schema))}
            }
        if self._tools.wanted:
            request["tools"] = self._definitions
            if not may_read:
                request["tool_choice"] = {"type": "none"}
        return request

    def _falls_back(self, error: Exception, request: Mapping[str, Any]) -> bool:
        """Whether the same call is worth making again without something that the server just refused."""
        if not isinstance(error, self._sdk.APIStatusError) or error.status_code not in _UNSUPPORTED:
            return False
        words = text_of(error)
        for feature, key in ((self._structured, "output_config"), (self._tools, "tools")):
            if key not in request:
                continue
            # Another job may have found it out while this call was under way.
            if not feature.wanted or feature.gives_way(words):
                return True
        return False


async def _leave_long_waits(response: "httpx2.Response") -> None:
    """Keep the SDK from sleeping for as long as a server says: it would hold the lease and use up the time budget."""
    wait = retry_after(response.headers)
    if wait is not None and wait > LONGEST_WAIT:
        response.headers["x-should-retry"] = "false"


def _reply(message: "Message") -> Reply:
    # The SDK does not check what it gets: a server that only resembles the Messages API gives any object.
    content = getattr(message, "content", None)
    if not isinstance(content, list):
        raise not_the_api()
    texts = [block.text for block in content if getattr(block, "type", None) == "text" and isinstance(block.text, str)]
    uses = [
        ToolUse(str(block.id), str(block.name), block.input)
        for block in content
        if getattr(block, "type", None) == "tool_use"
    ]
    details = message.stop_details
    return Reply(
        text="".join(texts),
        tool_uses=tuple(uses),
        content=content,
        stop_reason=message.stop_reason or "",
        refusal_category=details.category if details is not None else None,
        model=str(message.model),
        usage=message.usage,
    )
