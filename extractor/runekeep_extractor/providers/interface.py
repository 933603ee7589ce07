"""Defines what a provider is: it puts a question into its server's form, sends it, and reads the answer.

Everything else is the same for all providers: `client` keeps budgets, finds out what a server supports, waits out
outages and records calls.
"""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from runekeep.v1 import common_pb2
from runekeep_extractor.prompts.reads import Tool
from runekeep_extractor.providers.errors import NoAnswerInTime
from runekeep_extractor.providers.features import Feature

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

STRUCTURED_OUTPUT: Final = "structured_output"
"""Feature: answers are held to a JSON schema."""
BOUNDS: Final = "bounds"
"""Feature: the lengths in that schema are kept to as well."""
JSON_MODE: Final = "json_mode"
"""Feature: answers are held to be JSON, used where there is no structured output."""
TOOLS: Final = "tools"
"""Feature: the model can call tools."""
STREAMING: Final = "streaming"
"""Feature: long answers come piece by piece, so that a slow answer can be told from none."""
MAX_TOKENS: Final = "max_tokens"
"""Feature: the limit of an answer is called `max_tokens`, and not `max_completion_tokens`."""


class Stop(Enum):
    """Why a model stopped."""

    FINISHED = auto()
    TOOLS = auto()
    TRUNCATED = auto()
    REFUSED = auto()
    CONTEXT_FULL = auto()


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a question: an https address, or `data` in base64 with its media type."""

    url: str = ""
    media_type: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A read that the model requests."""

    id: str
    name: str
    input: object


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to the tool use of that id."""

    id: str
    text: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `message` is the answer in the server's own form; it is sent back unchanged when the dialogue
    continues.

    `stop_reason`: the server's own word. `usage`: the server's counts, 0 where it gives none.
    """

    text: str
    tool_uses: tuple[ToolUse, ...]
    message: Any
    stop: Stop
    stop_reason: str
    model: str
    usage: common_pb2.TokenUsage
    refusal_category: str | None = None


@dataclass(slots=True)
class UserTurn:
    """A user message. A plain string is a text."""

    parts: list[str | Image | ToolResult]


Turn = UserTurn | Reply


@dataclass(frozen=True, slots=True)
class Question:
    """One call, before the server's features are known. Without a schema or tools none are sent.

    `bounded`: the schema bounds texts and lists. `without`: features that this call does without, whatever the server
    supports. `probes`: the feature that the call tests, if it is a probe.
    """

    model: str
    turns: Sequence[Turn]
    max_tokens: int
    system: Sequence[str] = ()
    schema: Mapping[str, Any] | None = None
    bounded: bool = False
    tools: Sequence[Tool] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    without: frozenset[str] = frozenset()
    probes: str = ""


class Provider(Protocol):
    """Speaks one API through its SDK."""

    name: str
    """For people, spans and the engine's name."""
    base_url: str

    def features(self) -> Mapping[str, Feature]:
        """Returns the features that a server may lack, by name, all of them unknown yet."""
        ...

    def schema(self, schema: Mapping[str, Any], *, bounded: bool) -> Mapping[str, Any]:
        """Returns a JSON schema in the form in which it is sent, with bounds of texts and lists if it is `bounded` and
        the API takes them.
        """
        ...

    def request(self, question: Question, features: Collection[str]) -> dict[str, Any]:
        """Returns the request that asks the question with these features, as JSON. It holds no key."""
        ...

    def with_max_tokens(self, request: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
        """Returns the request with another limit of its answer."""
        ...

    async def send(self, request: Mapping[str, Any], heard: Callable[[], None]) -> Reply:
        """Returns the answer to a request. Repeats a call that the server refused for the moment. `heard` is called
        when a streamed answer begins, and for each piece of it.

        Raises ServerError if the server refuses the request, NoAnswerInTime if it received it and gave no answer, and
        JobFailed for everything else.
        """
        ...

    async def count(self, request: Mapping[str, Any]) -> int | None:
        """Returns the prompt's tokens as the server counts them; None if it does not."""
        ...

    async def close(self) -> None:
        """Closes the connections."""
        ...


def streams(response: "httpx2.Response") -> bool:
    """Returns whether a response is a stream of events: some servers ignore the wish for one."""
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


async def pieces_of(stream: AsyncIterable[T], seconds: float) -> AsyncIterator[T]:
    """Yields the pieces of a streamed answer. Raises NoAnswerInTime if one takes longer than `seconds`: a server's
    keep-alives are no pieces, but reset the timeout of the HTTP client.
    """
    iterator = aiter(stream)
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(iterator)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise NoAnswerInTime from None
        yield piece


def arguments_of(text: str) -> object:
    """Returns the arguments of a tool call. None if they are not JSON; `Reader` then asks the model for an object."""
    try:
        return json.loads(text)
    except ValueError:
        return None
