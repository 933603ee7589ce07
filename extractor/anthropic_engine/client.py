"""Calls of the Messages API: one place for the SDK, for what a call may cost, and for what is kept of it."""

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from extractor import telemetry
from extractor.anthropic_engine import probe
from extractor.anthropic_engine.budget import answer_room, has_images, left, most_input
from extractor.anthropic_engine.failures import FeatureRefused, from_sdk_error, not_in_time, not_the_api, retry_after
from extractor.anthropic_engine.features import COMPLAINTS, Features
from extractor.anthropic_engine.lean import lean
from extractor.anthropic_engine.outage import LONGEST_WAIT, Outage
from extractor.anthropic_engine.prompt import answer_shape
from extractor.anthropic_engine.reads import tool_definitions
from extractor.anthropic_engine.recording import TIMED_OUT, canonical, model_call
from extractor.anthropic_engine.reply import Reply, read_reply
from extractor.anthropic_engine.usage import IMAGES, OPERATIONS, PROBE, REASONING, REPAIR, Ledger, at_most
from extractor.engine import Job, JobFailed, NotConfigured
from extractor.settings import AnthropicSettings
from runekeep.v1 import extractor_service_pb2 as contract

if TYPE_CHECKING:
    import httpx2

_COUNT_MARGIN = 1.02
"""Counts of tokens ahead of a call are told to be near the truth, not to be it."""


@dataclass(frozen=True, slots=True)
class _Question:
    """One call, before it is known what the server can do. Without a schema or tools none are sent.

    `in_words`: the shape of the answer is told by the prompt, whatever the server can do.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    system: Sequence[str] = ()
    schema: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    in_words: bool = False


@dataclass(frozen=True, slots=True)
class _Priced:
    """A request that the job can pay for. `written`: as `canonical` gives it; `most`: tokens of its input, at most."""

    request: Mapping[str, Any]
    written: bytes
    most: int

    @property
    def model(self) -> str:
        model: str = self.request["model"]
        return model

    @property
    def max_tokens(self) -> int:
        most: int = self.request["max_tokens"]
        return most


class MessagesClient:
    """One connection pool to one server. Safe for calls side by side; those of one job come one after another."""

    def __init__(self, settings: AnthropicSettings, max_retries: int) -> None:
        """Raises NotConfigured where the SDK finds no credentials at all."""
        # Takes more than a second, and only this engine needs it.
        import anthropic

        self.outage = Outage(silence=settings.timeout)
        self._sdk = anthropic
        self._settings = settings
        self._features: dict[str, Features] = {}
        self._counts_tokens = True
        self._reads = tool_definitions()
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
            middleware=[_each_counts],
            # Its own spans would be of the conversation, should the environment say so; and a model server of others
            # is not to learn of the traces here. What is to be told of a call `telemetry` tells.
            open_telemetry={"traces": False, "propagation": False},
        )
        # What Anthropic's own API can do is known; there a feature is given up only over a complaint.
        self._probes = self._client.base_url.host != "api.anthropic.com"
        if self._client.api_key is None and self._client.auth_token is None and self._client.credentials is None:
            # Said now: the SDK finds out with each call, when there is a job that would fail by it.
            raise NotConfigured("the engine `anthropic` needs ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL")

    async def ask(
        self,
        system: Sequence[str],
        messages: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any],
        *,
        job: Job,
        phase: str,
        max_tokens: int,
        may_read: bool | None,
        give_up_at: float,
    ) -> Reply:
        """The server's answer; until `give_up_at`, a time of the loop, an outage is waited out.

        `phase` picks the model and is what the call is counted under in `job.spent`, but that a dialogue's calls which
        ended in reads or for want of room are reasoning. Every answer is kept in `job.calls`, and so is a call that got
        none in time. `may_read` False keeps the tools in the prompt, for its cache, but forbids their use; None leaves
        them out. The shape of the answer is told by `schema`, or where the server takes none by words after `system`.
        Raises JobFailed when the server gives no answer of the Messages API, and before the call when it might cost
        more than the job may spend.
        """
        question = _Question(
            model=self._settings.model_for(phase),
            messages=messages,
            max_tokens=max_tokens,
            system=system,
            schema=_sent(json.dumps(schema)),
            tools=() if may_read is None else self._reads,
            tool_choice="auto" if may_read else "none",
        )
        await self._find_out(question, job, give_up_at)
        return await self._call(question, job, phase, give_up_at)

    async def close(self) -> None:
        """Give back the connections."""
        await self._client.close()

    def _features_of(self, model: str) -> Features:
        if model not in self._features:
            self._features[model] = Features.by(self._settings, probed=self._probes)
        return self._features[model]

    async def takes_images(self, job: Job, give_up_at: float) -> bool:
        """Whether the model for images takes any, found out with one that nobody sent. Raises JobFailed when the
        server cannot tell now.
        """
        source = {"type": "image", "source": dict(probe.IMAGE)}
        messages = [{"role": "user", "content": [source, {"type": "text", "text": probe.IMAGE_QUESTION}]}]
        question = _Question(self._settings.model_for(IMAGES), messages, probe.MOST_TOKENS)
        try:
            await self._call(question, job, PROBE, give_up_at)
        except JobFailed as failed:
            if failed.failure_class not in (contract.FAILURE_CLASS_INTERNAL, contract.FAILURE_CLASS_UNSUPPORTED):
                raise
            return failed.failure_class != contract.FAILURE_CLASS_UNSUPPORTED
        return True

    async def _find_out(self, question: _Question, job: Job, give_up_at: float) -> None:
        """Probe what the question needs and nobody knows yet. Jobs that begin side by side may both do it."""
        features = self._features_of(question.model)
        if question.schema is not None and features.structured_output.unsure:
            await self._probe_format(question.model, job, give_up_at)
        if question.tools and features.tools.unsure:
            await self._probe_tools(question.model, job, give_up_at)

    async def _probe_format(self, model: str, job: Job, give_up_at: float) -> None:
        asked = _Question(model, _said(probe.FORMAT_QUESTION), probe.MOST_TOKENS, schema=probe.FORMAT_SCHEMA)
        reply = await self._try(asked, job, give_up_at)
        self._features_of(model).structured_output.found(reply is not None and probe.keeps_format(reply))

    async def _probe_tools(self, model: str, job: Job, give_up_at: float) -> None:
        asked = _Question(model, _said(probe.TOOL_QUESTION), probe.MOST_TOKENS, tools=(probe.TOOL,), tool_choice="any")
        reply = await self._try(asked, job, give_up_at)
        self._features_of(model).tools.found(reply is not None and probe.calls_tool(reply))

    async def _try(self, question: _Question, job: Job, give_up_at: float) -> Reply | None:
        """The answer to a probe; None when the server refuses the request."""
        try:
            return await self._call(question, job, PROBE, give_up_at)
        except JobFailed as failed:
            if failed.failure_class != contract.FAILURE_CLASS_INTERNAL:
                raise
            return None

    async def _call(self, question: _Question, job: Job, phase: str, give_up_at: float) -> Reply:
        while True:
            try:
                return await self.outage.call(partial(self._attempt, question, job, phase), give_up_at)
            except FeatureRefused as refused:
                if phase == PROBE:
                    raise
                question = await self._without(question, refused.key, job, give_up_at)

    async def _without(self, question: _Question, key: str, job: Job, give_up_at: float) -> _Question:
        """The question as it can be asked without a feature. Whether others do without it too, a probe tells."""
        features = self._features_of(question.model)
        if key == "output_config":
            if not features.structured_output.settled:
                await self._probe_format(question.model, job, give_up_at)
            return replace(question, in_words=True)
        if not features.tools.settled:
            await self._probe_tools(question.model, job, give_up_at)
        return replace(question, tools=())

    async def _attempt(self, question: _Question, job: Job, phase: str) -> Reply:
        """One call, which is counted unless it was refused or never reached the server. Raises JobFailed."""
        priced = await self._within_budget(question, job)
        with telemetry.model_call(phase, priced.model, priced.max_tokens) as call:
            return await self._answered(priced, job, phase, call)

    async def _answered(self, priced: _Priced, job: Job, phase: str, call: telemetry.ModelCall) -> Reply:
        request, model = priced.request, priced.model
        try:
            message = await self._client.messages.create(**request)
        except _GivenUp:
            # The server may work on it to its end, and is paid for that: it costs what it can cost at most.
            cost = at_most(priced.most, priced.max_tokens)
            call.spent(phase, cost)
            Ledger(job.spent).add(phase, model, cost)
            job.calls.append(model_call(phase, model, priced.written, [], "", TIMED_OUT))
            raise not_in_time() from None
        except self._sdk.AnthropicError as error:
            failed = from_sdk_error(error, images=has_images(request))
            key = self._refused_key(error, model, request)
            raise (failed if key is None else FeatureRefused(key, failed.message)) from error
        except json.JSONDecodeError:
            # The SDK lets it through. Without the cause, which holds the response's text.
            raise not_the_api() from None
        reply = read_reply(message, model, priced.most)
        unfinished = reply.tool_uses or reply.stop_reason == "max_tokens"
        counted_as = REASONING if unfinished and phase in (OPERATIONS, REPAIR) else phase
        call.answered(counted_as, reply)
        Ledger(job.spent).add(counted_as, reply.model, reply.usage)
        job.calls.append(
            model_call(counted_as, reply.model, priced.written, reply.content, reply.text, reply.stop_reason)
        )
        return reply

    async def _within_budget(self, question: _Question, job: Job) -> _Priced:
        """The question with as much room for its answer as there is. Raises JobFailed where there is too little."""
        request = self._request(question)
        written = canonical(request)
        most = most_input(request, written)
        remaining = left(job)
        if remaining is None:
            return _Priced(request, written, most)
        if most + question.max_tokens > remaining:
            most = min(most, await self._counted(request) or most)
        room = answer_room(question.max_tokens, most, remaining)
        if room < question.max_tokens:
            request = {**request, "max_tokens": room}
            written = canonical(request)
        return _Priced(request, written, most)

    async def _counted(self, request: Mapping[str, Any]) -> int | None:
        """Tokens of a request as the server counts them; None when it does not."""
        if not self._counts_tokens:
            return None
        asked = {name: value for name, value in request.items() if name != "max_tokens"}
        try:
            counted = await self._client.with_options(max_retries=0).messages.count_tokens(**asked)
        except self._sdk.APIStatusError as error:
            # Told by its absence; what else goes wrong may pass.
            self._counts_tokens = error.status_code not in (404, 405, 501)
            return None
        except (self._sdk.AnthropicError, json.JSONDecodeError, _GivenUp):
            return None
        tokens = getattr(counted, "input_tokens", None)
        return int(tokens * _COUNT_MARGIN) + 1 if isinstance(tokens, int) and tokens > 0 else None

    def _request(self, question: _Question) -> dict[str, Any]:
        features = self._features_of(question.model)
        request: dict[str, Any] = {
            "model": question.model,
            "max_tokens": question.max_tokens,
            "messages": list(question.messages),
        }
        structured = features.structured_output.wanted and not question.in_words
        if question.system:
            blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in question.system]
            if question.schema is not None and not structured:
                blocks.append({"type": "text", "text": answer_shape(question.schema)})
            blocks[-1]["cache_control"] = {"type": "ephemeral"}
            request["system"] = blocks
        if question.schema is not None and structured:
            request["output_config"] = {"format": {"type": "json_schema", "schema": question.schema}}
        if question.tools and features.tools.wanted:
            request["tools"] = list(question.tools)
            if question.tool_choice != "auto":
                request["tool_choice"] = {"type": question.tool_choice}
        return request

    def _refused_key(self, error: Exception, model: str, request: Mapping[str, Any]) -> str | None:
        """What of a refused request the same call is worth making again without."""
        if not isinstance(error, self._sdk.APIStatusError) or error.status_code not in COMPLAINTS:
            return None
        for key, feature in self._features_of(model).with_keys():
            # Another job may have found it out while this call was under way.
            if key in request and (not feature.wanted or feature.may_be_meant_by(error)):
                return key
        return None


@lru_cache(maxsize=64)
def _sent(schema: str) -> Mapping[str, Any]:
    """A JSON schema as it goes out. There are a few of them, and to make one takes milliseconds."""
    import anthropic

    return lean(anthropic.transform_schema(json.loads(schema)))


class _GivenUp(Exception):
    """The server had the request and gave no answer in time. Not of the SDK, which would repeat the call by itself."""


async def _each_counts(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Lets no call that was given up be repeated uncounted; one that had not begun costs nothing."""
    import httpx2
    from anthropic import APITimeoutError

    try:
        return await call_next(request)
    except APITimeoutError as error:
        if isinstance(error.__cause__, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            raise
        raise _GivenUp from None


def _said(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


async def _leave_long_waits(response: "httpx2.Response") -> None:
    """Keep the SDK from sleeping for as long as a server says: it would hold the lease and use up the time budget."""
    wait = retry_after(response.headers)
    if wait is not None and wait > LONGEST_WAIT:
        response.headers["x-should-retry"] = "false"
