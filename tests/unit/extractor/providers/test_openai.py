"""The provider `openai` against a double of the Chat Completions API: what it sends, reads, finds out, and reports."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed, NotConfigured
from runekeep_extractor.pipeline import ModelEngine
from runekeep_extractor.providers.client import LONG_ANSWER, ModelClient
from runekeep_extractor.providers.interface import Image, Reply, Stop, ToolResult, UserTurn
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.providers.outage import ServerAway
from runekeep_extractor.providers.usage import DEDUP, OPERATIONS
from runekeep_extractor.settings import OpenAISettings
from tests.doubles.chat_api import ChatApi, answer, error, rate_limited, tool_calls
from tests.doubles.model_api import Response, held, raw, reset
from tests.unit.extractor.model_client import SCHEMA, a_job, ask
from tests.unit.extractor.tea_talk import SEARCH_TOOL, answered
from tests.unit.extractor.tea_talk import a_job as a_talk


def settings_of(api: ChatApi, **options: Any) -> OpenAISettings:
    values = {"api_key": "key", "base_url": api.url, "model": "some-model", "timeout": 20.0}
    return OpenAISettings(**(values | options))


TOO_LARGE = contract.FAILURE_CLASS_INPUT_TOO_LARGE


@asynccontextmanager
async def client_of(api: ChatApi, *, max_retries: int = 0, **options: Any) -> AsyncIterator[ModelClient]:
    """By default with switches that make no probes."""
    settings = settings_of(api, **({"structured_output": "on", "tools": "on"} | options))
    client = ModelClient(settings, open_provider(settings, max_retries))
    try:
        yield client
    finally:
        await client.close()


async def failure_of(api: ChatApi, **options: Any) -> JobFailed:
    async with client_of(api, **options) as client:
        with pytest.raises(JobFailed) as caught:
            await ask(client, a_job())
    return caught.value


async def test_a_commit_with_reads_goes_through_the_same_engine():
    job = a_talk()
    with ChatApi() as api:
        api.script(tool_calls(("read", {"uri": SEARCH_TOOL.uri})))
        api.otherwise = answer(answered())
        engine = ModelEngine(settings_of(api), max_retries=0, patience=0.0)
        output = await engine.extract(job)
        await engine.close()
    assert output.operations and output.summary is not None
    assert (engine.info.engine, engine.info.model) == ("openai", "some-model")
    asked, looked = api.calls[:2]
    assert asked.body["response_format"]["json_schema"]["strict"] is True
    assert "max_tokens" in asked.body and "max_completion_tokens" not in asked.body
    assert [one["role"] for one in asked.body["messages"]] == ["system", "user"]
    assert [one["role"] for one in looked.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert looked.body["messages"][2]["tool_calls"][0]["id"] == looked.body["messages"][3]["tool_call_id"]
    assert SEARCH_TOOL.uri in looked.body["messages"][3]["content"]
    assert [entry.phase for entry in job.spent] == ["probe", "reasoning", "operations"]
    assert json.loads(job.calls[-2].answer)["tool_calls"][0]["function"]["name"] == "read"


async def test_cached_tokens_are_counted_once():
    job = a_job()
    counts = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    }
    message = {"message": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}
    with ChatApi() as api:
        api.otherwise = raw(json.dumps({"model": "m", "choices": [message], "usage": counts}).encode())
        async with client_of(api) as client:
            await ask(client, job)
    (entry,) = job.spent
    assert (entry.input_tokens, entry.cache_read_tokens, entry.cache_write_tokens, entry.output_tokens) == (
        30,
        60,
        10,
        7,
    )


@pytest.mark.parametrize(
    ("structured", "json_mode", "form", "probes"),
    [
        (True, True, "json_schema", 1),
        (False, True, "json_object", 1),
        (None, True, "json_object", 1),
        (False, False, None, 2),
    ],
)
async def test_the_form_of_answers_falls_back_from_schema_to_json_to_words(structured, json_mode, form, probes):
    """None: the server takes a schema in silence and ignores it."""
    with ChatApi(structured_output=structured, json_mode=json_mode) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, structured_output="auto") as client:
            await ask(client, a_job())
            await ask(client, a_job())
    assert [(call.body.get("response_format") or {}).get("type") for call in api.calls[-2:]] == [form, form]
    assert ("with all of these keys" in api.calls[-1].system_text) == (form != "json_schema")
    assert len(api.probes) == probes


@pytest.mark.parametrize("works", [True, False, None])
async def test_whether_a_server_has_tools_is_found_out_once(works):
    with ChatApi(tools=works) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, tools="auto") as client:
            await ask(client, a_job())
            await ask(client, a_job())
    assert ["tools" in call.body for call in api.calls] == [bool(works)] * 2
    assert len(api.probes) == 1


async def test_a_model_that_no_host_serves_with_tools_is_asked_without():
    """As OpenRouter says it."""
    missing = raw(b'{"error":{"message":"No endpoints found that support tool use.","code":404}}', status=404)
    with ChatApi() as api:
        probed = api._probed
        api._probed = lambda request: missing if "tools" in request.body else probed(request)
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, tools="auto") as client:
            await ask(client, a_job())
    assert ["tools" in call.body for call in api.calls] == [False]


async def test_a_model_that_takes_no_max_tokens_gets_the_other_name_and_keeps_its_features():
    """As OpenAI's reasoning models behind another address. It thinks longer than a probe usually lets it."""
    with ChatApi(limit="max_completion_tokens", thinks=600) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, structured_output="auto", tools="auto") as client:
            reply = await ask(client, a_job(), max_tokens=3000)
            await ask(client, a_job(), max_tokens=3000)
    assert reply.text == '{"word": "tea"}'
    assert [call.body.get("max_completion_tokens") for call in api.calls] == [3000, 3000]
    assert all("tools" in call.body and "response_format" in call.body for call in api.calls)


async def test_a_limit_that_is_too_large_is_not_taken_for_one_that_is_unknown():
    with ChatApi() as api:
        api.otherwise = error(400, "invalid_request_error", "max_tokens is too large: 3000", param="max_tokens")
        failed = await failure_of(api)
    assert failed.failure_class == contract.FAILURE_CLASS_INTERNAL
    assert len(api.requests) == 1


async def test_openais_own_api_is_not_probed_and_gets_the_new_name():
    settings = OpenAISettings(api_key="key", model="some-model", base_url=None)
    provider = open_provider(settings, max_retries=0)
    features = provider.features()
    await provider.close()
    assert provider.base_url == "https://api.openai.com/v1/"
    assert "max_tokens" not in features and not any(feature.unsure for feature in features.values())


@pytest.mark.parametrize("options", [{"model": "", "api_key": "key"}, {"model": "some-model", "api_key": None}])
def test_what_is_missing_is_said_before_any_job(options, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(NotConfigured):
        ModelEngine(OpenAISettings(**options))


async def test_a_key_is_not_needed_where_there_is_an_address():
    with ChatApi() as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, api_key=None) as client:
            await ask(client, a_job())
    assert api.calls[0].headers["authorization"] == "Bearer none"


async def test_phases_have_models_of_their_own():
    with ChatApi() as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api, model_dedup="small", model_fingerprint="smaller") as client:
            for phase in (OPERATIONS, DEDUP, "fingerprint", "buckets"):
                await ask(client, a_job(), phase=phase)
    assert [call.body["model"] for call in api.calls] == ["some-model", "small", "smaller", "some-model"]


async def test_images_go_as_urls():
    images = [Image(url="https://x.example/a.png"), Image(media_type="image/png", data="QUJD")]
    with ChatApi() as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api) as client:
            await asked(client, [UserTurn(["Image 1:", *images, "Describe them."])])
    parts = api.calls[0].body["messages"][-1]["content"]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert urls == ["https://x.example/a.png", "data:image/png;base64,QUJD"]


async def test_a_model_without_images_says_so():
    with ChatApi(images=False) as api:
        api.otherwise = answer({"word": "tea"})
        async with client_of(api) as client:
            with pytest.raises(JobFailed) as caught:
                await asked(client, [UserTurn([Image(url="https://x.example/a.png")])])
            assert caught.value.failure_class == contract.FAILURE_CLASS_UNSUPPORTED
            assert not await client.takes_images(a_job(), 0.0)


async def asked(client: ModelClient, turns: list[UserTurn]) -> Reply:
    return await client.ask(
        [], turns, SCHEMA, job=a_job(), phase="images", max_tokens=500, may_read=None, give_up_at=0.0
    )


@pytest.mark.parametrize(
    ("behaviour", "failure_class", "retryable"),
    [
        (rate_limited(), contract.FAILURE_CLASS_RATE_LIMITED, True),
        (error(429, "insufficient_quota", code="insufficient_quota"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (error(500, "server_error"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (error(503, "server_error"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (reset(), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (error(401, "invalid_request_error", code="invalid_api_key"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (error(403, "forbidden"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (error(404, "invalid_request_error", code="model_not_found"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (error(400, "invalid_request_error", code="content_filter"), contract.FAILURE_CLASS_MODEL_REFUSED, False),
        (error(400, "invalid_request_error", code="context_length_exceeded"), TOO_LARGE, False),
        (error(413, "too_large"), TOO_LARGE, False),
        (error(400, "invalid_request_error", "messages: 'prompt is too long'"), contract.FAILURE_CLASS_INTERNAL, True),
        # llama.cpp
        (
            raw(b'{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (8 tokens)",'
            b'"type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}', status=400),
            TOO_LARGE,
            False,
        ),
        # vLLM, of old and where the answer has too little room
        (
            raw(b'{"object":"error","message":"This model\'s maximum context length is 4096 tokens. However",'
            b'"type":"BadRequestError","param":null,"code":400}', status=400),
            TOO_LARGE,
            False,
        ),
        (
            error(400, "BadRequestError", "'max_tokens' or 'max_completion_tokens' is too large: 500. This model's "
                  "maximum context length is 400 tokens and your request has 300 input tokens"),
            TOO_LARGE,
            False,
        ),
        # LM Studio
        (raw(b'{"error":"something is wrong"}', status=400), contract.FAILURE_CLASS_INTERNAL, True),
        # OpenRouter, whose errors may come with the status 200
        (raw(b'{"error":{"code":429,"message":"slow down"}}'), contract.FAILURE_CLASS_RATE_LIMITED, True),
        (
            raw(b'{"choices":[{"finish_reason":"error","message":{"content":"half an ans"},'
            b'"error":{"code":502,"message":"upstream"}}]}'),
            contract.FAILURE_CLASS_MODEL_UNAVAILABLE,
            True,
        ),
        (raw(b"<html>a proxy</html>"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (raw(b'{"detail":"Not Found"}'), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
        (raw(b"[]"), contract.FAILURE_CLASS_MODEL_UNAVAILABLE, True),
    ],
)  # fmt: skip
async def test_errors_become_the_failures_that_they_are_with_every_provider(behaviour, failure_class, retryable):
    with ChatApi() as api:
        api.otherwise = behaviour
        failed = await failure_of(api)
    assert (failed.failure_class, failed.retryable) == (failure_class, retryable)


async def test_the_server_says_how_long_to_wait_and_no_text_of_it_is_told():
    with ChatApi() as api:
        api.otherwise = error(429, "requests", "a secret question", retry_after=90.0)
        failed = await failure_of(api, max_retries=2)
    assert isinstance(failed, ServerAway) and failed.retry_after == 90.0
    assert len(api.calls) == 1, "the SDK does not sleep that long"
    assert "secret" not in failed.message


async def test_a_call_that_is_given_up_is_counted_at_its_most_and_not_repeated_by_the_sdk():
    job = a_job()
    with ChatApi() as api:
        api.otherwise = held(api.gate(), answer({"word": "tea"}))
        async with client_of(api, max_retries=2, timeout=0.3) as client:
            with pytest.raises(JobFailed):
                await ask(client, job)
    assert len(api.calls) == 1
    entry = job.spent[0]
    assert entry.output_tokens == 2000 and entry.input_tokens > 100
    assert job.calls[0].stop_reason == "timeout"


@pytest.mark.parametrize(
    ("behaviour", "stop"),
    [
        (answer("{}", finish_reason="length"), Stop.TRUNCATED),
        (answer("", finish_reason="content_filter"), Stop.REFUSED),
        (answer(None, refusal="I will not"), Stop.REFUSED),
        (answer("{}"), Stop.FINISHED),
    ],
)
async def test_why_a_model_stopped(behaviour, stop):
    with ChatApi() as api:
        api.otherwise = behaviour
        async with client_of(api) as client:
            assert (await ask(client, a_job())).stop is stop


async def test_thoughts_are_no_part_of_the_answer():
    with ChatApi() as api:
        api.otherwise = answer('<think>{"word": "coffee"}?</think>\n{"word": "tea"}')
        async with client_of(api) as client:
            assert (await ask(client, a_job())).text == '{"word": "tea"}'


async def test_tool_calls_that_only_resemble_the_api_are_read_as_far_as_they_go():
    calls = [
        {"function": {"name": "read", "arguments": {"uri": "viking://user/x"}}},
        {"id": "b", "function": {"name": "read", "arguments": "no JSON"}},
        "no call",
    ]
    with ChatApi() as api:
        api.script(answer(None, tool_calls=calls))
        api.otherwise = answer({"word": "tea"})
        async with client_of(api) as client:
            reply = await ask(client, a_job())
            results = UserTurn([ToolResult(use.id, "text", False) for use in reply.tool_uses])
            await asked(client, [UserTurn(["Which?"]), reply, results])  # type: ignore[list-item]  # a reply is a turn
    assert [(use.id, use.input) for use in reply.tool_uses] == [("call_0", {"uri": "viking://user/x"}), ("b", None)]


async def test_a_stream_keeps_parts_of_texts_calls_with_one_index_and_unknown_keys():
    first = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"uri'}, "extra_content": {"sign": "x"}}
    rest = {"index": 0, "id": "", "function": {"name": None, "arguments": '": "viking://user/x"}'}}
    second = {"index": 0, "id": "b", "function": {"name": "ls", "arguments": "{}"}}
    deltas = [
        {"content": [{"type": "text", "text": "I "}]},
        {"content": "look.", "tool_calls": [first]},
        {"tool_calls": [rest, second]},
    ]
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas] + [
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    ]
    with ChatApi() as api:
        api.otherwise = lambda _: Response(events=[f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks])
        async with client_of(api) as client:
            reply = await ask(client, a_job(), max_tokens=LONG_ANSWER)
    assert reply.text == "I look."
    assert [(use.id, use.name, use.input) for use in reply.tool_uses] == [
        ("a", "read", {"uri": "viking://user/x"}),
        ("b", "ls", {}),
    ]
    assert [call.get("extra_content") for call in reply.message["tool_calls"]] == [{"sign": "x"}, None]
