"""`runekeep proxy` between the real SDKs and a double of their API, before a real server."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from runekeep import AsyncClient, AsyncSession, TextPart
from tests.acceptance.processes import Processes
from tests.doubles import chat_api, messages_api
from tests.doubles.model_api import ModelApi, Request, Response
from tests.support.serving import serving

SYSTEM = "You are a gardener."
QUESTION = "Which tea shall I offer to Robin?"
ANSWER = "Green tea, as ever. \u2028Enjoy it."
MEMORY = "Robin drinks green tea."


async def ask_openai(url: str, question: str, headers: dict[str, str], stream: bool) -> tuple[str, str]:
    """The answer, and what the proxy says about memory."""
    messages: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    async with AsyncOpenAI(base_url=f"{url}v1", api_key="any", default_headers=headers, max_retries=0) as client:
        calls = client.chat.completions.with_raw_response
        response = await calls.create(model="m", messages=messages, max_tokens=100, stream=stream)
        said: Any = response.parse()
        if not stream:
            return said.choices[0].message.content, response.headers["x-runekeep-memory"]
        pieces = [chunk.choices[0].delta.content or "" async for chunk in said if chunk.choices]
        return "".join(pieces), response.headers["x-runekeep-memory"]


async def ask_anthropic(url: str, question: str, headers: dict[str, str], stream: bool) -> tuple[str, str]:
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": question}]}]
    async with AsyncAnthropic(base_url=url, api_key="any", default_headers=headers, max_retries=0) as client:
        calls = client.messages.with_raw_response
        response = await calls.create(model="m", system=SYSTEM, messages=messages, max_tokens=100, stream=stream)
        said: Any = await response.parse()
        if not stream:
            return said.content[0].text, response.headers["x-runekeep-memory"]
        pieces = [event.delta.text async for event in said if event.type == "content_block_delta"]
        return "".join(pieces), response.headers["x-runekeep-memory"]


def upstream(name: str) -> tuple[Any, ModelApi, str]:
    """How to ask, the double with one scripted answer to everything, and its URL without the version."""
    if name == "openai":
        chat = chat_api.ChatApi(streams=True)
        chat.otherwise = chat_api.answer(ANSWER)
        return ask_openai, chat, "/v1"
    messages = messages_api.MessagesApi(streams=True)
    messages.otherwise = messages_api.answer(ANSWER)
    return ask_anthropic, messages, ""


def sent(request: Request) -> tuple[str, str]:
    """What the model got as system prompts, and as the user's last words."""
    body = request.body
    messages = body["messages"]
    system = [one["content"] for one in messages if one["role"] == "system"]
    given = body.get("system", system)
    joined = given if isinstance(given, str) else "\n".join(str(one) for one in given)
    return joined, str(messages[-1]["content"])


async def texts(session: AsyncSession) -> list[str]:
    return [
        part.text async for message in session.messages("all") for part in message.parts if isinstance(part, TextPart)
    ]


async def wait_for(client: AsyncClient, session: str, count: int) -> list[str]:
    """The texts of a session, once it has so many: they are appended after the answer."""
    while len(found := await texts(await client.get_session(session, auto_create=True))) < count:
        pass
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_requests_get_memory_and_what_is_said_becomes_a_session(
    fleet: Processes, tmp_path: Path, name: str, stream: bool
) -> None:
    fleet.server(RUNEKEEP_EMBEDDER="none")
    ask, double, suffix = upstream(name)
    async with AsyncClient(fleet.address, user="robin") as client:
        await client.put_memory("preferences", {"topic": "Tea", "content": MEMORY})
        written = await client.put_memory(
            "entities", {"entity_name": "Robin", "content": "Robin offers tea to guests."}
        )
        await client.find("tea", min_revision=written["revision"])
        with double as api:
            root = api.url.removesuffix(suffix)
            with serving("proxy", "--upstream", root, "--address", fleet.address) as url:
                headers = {"x-runekeep-user": "robin", "x-runekeep-session": "talk"}
                for _ in range(2):
                    # A request that is repeated adds nothing twice.
                    assert await ask(url, QUESTION, headers, stream) == (ANSWER, "added")
                assert await ask(url, "And for Anna?", headers, stream) == (ANSWER, "added")
                stored = await wait_for(client, "talk", 4)
                # Whoever names nobody known gets nothing, and nothing of it is kept.
                stranger = {"x-runekeep-user": "stranger"}
                assert await ask(url, QUESTION, stranger, stream) == (ANSWER, "nothing")
            requests = api.requests
        system, words = sent(requests[0])
        assert sum(one["role"] == "system" for one in requests[0].body["messages"]) <= 1
        assert SYSTEM in system and MEMORY in system and "<runekeep-memory>" in system
        assert words.index("<runekeep-memory>") < words.index(QUESTION)
        assert "runekeep" not in str(sent(requests[-1]))
        assert not any(header.startswith("x-runekeep") for header in requests[0].headers)
        assert stored == [QUESTION, ANSWER, "And for Anna?", ANSWER]
        assert (await (await client.get_session("talk")).info())["auto_commit"] is not None


async def test_ids_follow_from_texts_and_an_answer_counts_at_its_end_mark(fleet: Processes) -> None:
    fleet.server(RUNEKEEP_EMBEDDER="none")
    chat = chat_api.ChatApi(streams=True)
    chat.otherwise = chat_api.answer(ANSWER)
    async with AsyncClient(fleet.address, user="robin") as client:
        with (
            chat as api,
            serving("proxy", "--upstream", api.url.removesuffix("/v1"), "--address", fleet.address) as url,
        ):
            headers = {"authorization": "Bearer a", "x-runekeep-user": "robin", "x-runekeep-session": "talk"}
            async with httpx2.AsyncClient(base_url=url, headers=headers) as http:
                marked = [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]
                for content in (QUESTION, marked):
                    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
                    async with http.stream("POST", "v1/chat/completions", json={**body, "stream": True}) as response:
                        async for line in response.aiter_lines():
                            if line == "data: [DONE]":
                                break
                assert await wait_for(client, "talk", 2) == [QUESTION, ANSWER]


async def test_requests_cannot_leave_the_upstream_and_cookies_stay_with_their_caller() -> None:
    # With usage the double makes the response anew, without its headers.
    chat = chat_api.ChatApi(counts_usage=False)

    def set_cookie(request: Request) -> Response:
        response = chat_api.answer(ANSWER)(request)
        return replace(response, headers={"set-cookie": "session=anna; Path=/"})

    chat.otherwise = set_cookie
    with chat as api, serving("proxy", "--upstream", api.url.removesuffix("/v1"), "--address", "127.0.0.1:1") as url:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
        for _ in range(2):
            async with httpx2.AsyncClient(base_url=url, headers={"authorization": "Bearer a"}) as http:
                answer = await http.post("v1/chat/completions", json=body, headers={"x-name": b"M\xfcller"})
                assert (answer.status_code, answer.headers["set-cookie"]) == (200, "session=anna; Path=/")
        assert [request.headers.get("cookie") for request in api.requests] == [None, None]
        port = int(url.rstrip("/").rpartition(":")[2])
        elsewhere = api.url.removeprefix("http://").removesuffix("/v1")
        for target in (f"%2F@{elsewhere}/v1/models", "/v1/../admin", "/v1/%2e%2E/admin", f"http://{elsewhere}/admin"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            # The router itself finds no route for a whole URL.
            assert (await reader.read()).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404")), target
            writer.close()
            await writer.wait_closed()
        assert len(api.requests) == 2


async def test_the_model_is_reached_while_memory_is_away_and_errors_of_its_api_pass(tmp_path: Path) -> None:
    chat = chat_api.ChatApi()
    chat.otherwise = chat_api.answer(ANSWER)
    with chat as api:
        root = api.url.removesuffix("/v1")
        with serving("proxy", "--upstream", root, "--address", "127.0.0.1:1", "--user", "robin") as url:
            headers = {"x-runekeep-session": "talk"}
            assert await ask_openai(url, QUESTION, headers, False) == (ANSWER, "unavailable")
            async with httpx2.AsyncClient(base_url=url) as http:
                missing = await http.post("v1/embeddings?n=1", json={"input": "tea"})
                assert (missing.status_code, missing.headers["x-runekeep-memory"]) == (404, "no-conversation")
                assert missing.json()["error"]["message"] == "Not found"
                odd = b'{"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "\\ud800 tea?"}]}'
                passed = await http.post("v1/chat/completions", content=odd, headers={"authorization": "Bearer a"})
                assert passed.json()["choices"][0]["message"]["content"] == ANSWER
                bad = await http.get("v1/models", headers={"origin": "http://["})
                assert bad.status_code == 403
                other_site = await http.get("v1/models", headers={"origin": "https://evil.example"})
                assert other_site.status_code == 403
                image = await http.get("v1/models", headers={"sec-fetch-site": "cross-site"})
                assert image.status_code == 403
                other_name = await http.get("v1/models", headers={"host": "evil.example"})
                assert other_name.status_code == 403
    options = ("--upstream", "http://robin:secret@127.0.0.1:1", "--name", "Memory.example")
    with serving("proxy", *options, "--address", "127.0.0.1:1") as url:
        async with httpx2.AsyncClient(base_url=url) as http:
            body = {"messages": [{"role": "user", "content": "Hello"}]}
            gone = await http.post("v1/chat/completions", json=body, headers={"host": "memory.example"})
    assert gone.status_code == 502 and "cannot be reached" in gone.json()["error"]["message"]
    assert "secret" not in gone.text
