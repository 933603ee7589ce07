"""The studio beside a real server: what strangers, other sites and stored texts cannot do, and what forms do."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import pytest

from runekeep import AsyncClient, ContextPart, ImagePart, Message, TextPart, ToolPart
from runekeep.studio.settings import StudioSettings
from runekeep.v1 import admin_service_pb2
from runekeep.web.listening import ListenError
from tests.support.callers import unique
from tests.support.keys import ADMIN_KEY, KEYED, Operator
from tests.support.server_process import ServerProcess
from tests.support.studio import ATTACK, Browser, links, studio, what_could_run

SERVER_SETTINGS = KEYED


class Person:
    """A user with a key, logged in to the studio, and the client of the user's agent."""

    def __init__(self, name: str, key: str, address: str, browser: Browser) -> None:
        self.name, self.key, self.browser = name, key, browser
        self.agent = AsyncClient(address, api_key=key)


@pytest.fixture
async def transport(server: ServerProcess) -> AsyncIterator[httpx.ASGITransport]:
    async with studio(server.address, operator=True) as transport:
        yield transport


@pytest.fixture
async def people(
    server: ServerProcess, channel: grpc.aio.Channel, transport: httpx.ASGITransport
) -> AsyncIterator[list[Person]]:
    """Two people of two accounts."""
    made = []
    for _ in range(2):
        name = unique("user")
        key = await Operator(channel).make(admin_service_pb2.SCOPE_USER, unique("account"), name)
        person = Person(name, key.secret, server.address, Browser(transport))
        answer = await person.browser.log_in(api_key=key.secret)
        assert answer.status_code == 200 and name in answer.text
        made.append(person)
    yield made
    for person in made:
        await person.agent.close()
        await person.browser.http.aclose()


async def remember(person: Person, text: str) -> dict[str, Any]:
    """Puts a text into every field that takes one. Returns the memory and the task."""
    session = await person.agent.create_session("talk", title=text[:200])
    said = [
        Message(
            role="user",
            speaker=text[:128],
            parts=[
                TextPart(text),
                ImagePart("https://evil.example/i.png", caption=text),
                ImagePart("data:image/png;base64,AA=="),
            ],
        ),
        Message(
            role="assistant",
            parts=[
                ContextPart("viking://user/x/memories/profile.md", text),
                ToolPart(tool_id="t1", tool_name=text[:250], skill_name=text[:250], input={text: text}, output=text),
            ],
        ),
    ]
    await session.add_messages(said)
    memory = await person.agent.put_memory("preferences", {"topic": "Tea", "content": text}, abstract=text)
    committed = await session.commit()
    await session.add_messages(said[:1])
    return {"uri": memory["uri"], "task": committed["task_id"]}


async def crawl(browser: Browser, start: str = "/", most: int = 120) -> dict[str, httpx.Response]:
    """All pages that can be reached by links, one for each address without its page token."""
    seen: dict[str, httpx.Response] = {}
    waiting = [start]
    while waiting and len(seen) < most:
        path = waiting.pop(0)
        if path in seen or path.startswith("/data/export"):
            continue
        seen[path] = await browser.get(path)
        waiting += links(seen[path].text)
    return seen


async def test_stored_texts_run_nowhere(people: list[Person]) -> None:
    person = people[0]
    made = await remember(person, ATTACK)
    pages = await crawl(person.browser)
    pages[made["uri"]] = await person.browser.get(f"/search?q={ATTACK.replace('&', '')[:500]}&why={made['uri']}")
    pages["recall"] = await person.browser.get("/recall?q=tea&budget=2000")
    pages["edit"] = await person.browser.get(f"/memory/edit?uri={made['uri']}")
    assert {"/sessions/talk", f"/tasks/{made['task']}", "/history/1", "/data", "/turns"} <= set(pages)
    assert sum("pwned()" in page.text for page in pages.values()) > 10, "the texts are not shown"
    for path, page in pages.items():
        # The context that was shown to the agent is somebody else's.
        assert page.status_code == (400 if "%2Fx%2F" in path else 200), (path, page.text)
        assert what_could_run(page.text) == [], path
        assert "script-src 'self';" in page.headers["content-security-policy"]
        assert len(page.content) < 300_000, path


async def test_links_of_another_account_are_refused(people: list[Person]) -> None:
    owner, stranger = people
    made = await remember(owner, "a secret of the owner")
    paths = [
        "/sessions/talk",
        "/sessions/talk/archives/1",
        "/sessions/talk/turns",
        "/sessions/talk/commits/1",
        f"/tasks/{made['task']}",
        f"/tasks/{made['task']}/events",
        f"/memory?uri={made['uri']}",
        f"/memory/edit?uri={made['uri']}",
        f"/tree?uri=viking://user/{owner.name}/memories",
        "/history/1",
    ]
    for path in paths:
        # No worker has taken up the commit: its page is a conflict, and the stream of its events has no end.
        if not path.endswith("/events"):
            assert (await owner.browser.get(path)).status_code == (409 if "/commits/" in path else 200), path
        answer = await stranger.browser.get(path)
        assert answer.status_code in (400, 403, 404), (path, answer.status_code)
        assert "a secret" not in answer.text
    fields = {"uri": made["uri"], "base_version": "1"}
    token = re.findall(r'name="form_token" value="([^"]+)"', (await stranger.browser.get("/data")).text)[0]
    answer = await stranger.browser.http.post("/memory/delete", data={"form_token": token, **fields})
    assert answer.status_code in (400, 403, 404, 409)
    assert (await owner.agent.get_memory(made["uri"]))["version"] == 1


async def test_forged_requests_change_nothing(people: list[Person], transport: httpx.ASGITransport) -> None:
    victim, attacker = people
    memory = await victim.agent.put_memory("preferences", {"topic": "Tea", "content": "Likes green tea."})
    page = await victim.browser.get(f"/memory?uri={memory['uri']}")
    (token, *_) = re.findall(r'name="form_token" value="([^"]+)"', page.text)
    (foreign, *_) = re.findall(r'name="form_token" value="([^"]+)"', (await attacker.browser.get("/data")).text)
    form = {"uri": memory["uri"], "base_version": "1"}
    for headers, data in (
        ({}, form),
        ({}, {**form, "form_token": "x"}),
        ({}, {**form, "form_token": foreign}),
        ({"origin": "https://evil.example"}, {**form, "form_token": token}),
        ({"sec-fetch-site": "cross-site"}, {**form, "form_token": token}),
    ):
        answer = await victim.browser.http.post("/memory/delete", data=data, headers=headers)
        assert answer.status_code == 403, (headers, data)
    assert (await victim.browser.http.get("/", headers={"host": "evil.example"})).status_code == 421
    assert (await victim.agent.get_memory(memory["uri"]))["version"] == 1

    cookies = Browser(transport)
    answer = await cookies.http.get("/login")
    assert {"HttpOnly", "SameSite=lax"} <= set(re.split(r"; ", answer.headers["set-cookie"]))
    (name,) = dict(victim.browser.http.cookies)
    login_id = victim.browser.http.cookies[name].partition(".")[0]
    cookies.http.cookies.set(name, f"{login_id}.forged.signature")
    assert "Log in with a key" in (await cookies.get("/sessions")).text
    assert victim.key not in str(dict(victim.browser.http.cookies))

    # After the logout the old cookie opens nothing.
    kept = victim.browser.http.cookies[name]
    await victim.browser.submit("/", "/logout")
    cookies.http.cookies.set(name, kept)
    assert "Log in with a key" in (await cookies.get("/sessions")).text


async def test_a_wrong_key_and_operators(people: list[Person], transport: httpx.ASGITransport) -> None:
    assert (await Browser(transport).log_in(api_key="rk_nobody_secret")).status_code == 403
    for path in ("/operator/keys", "/no/such/page"):
        answer = await people[0].browser.get(path)
        assert answer.status_code == 404
        assert 'href="/help"' in answer.text and "script-src 'self';" in answer.headers["content-security-policy"]
    # An address of another site is not where a login leads.
    person = people[0]
    answer = await Browser(transport).log_in(api_key=person.key, next="//evil.example/")
    assert str(answer.url).startswith("http://127.0.0.1:7480/")

    operator = Browser(transport)
    await operator.log_in(api_key=ADMIN_KEY)
    for path in ("/operator", "/operator/accounts", "/operator/keys", "/operator/audit"):
        assert (await operator.get(path)).status_code == 200
    made = await operator.submit(
        "/operator/keys", "/operator/keys", scope="user", account="acme", user="ada", label=ATTACK[:200]
    )
    assert what_could_run(made.text) == []
    secret = re.search(r"rk_[A-Za-z0-9_-]+_[A-Za-z0-9_-]{20,}", made.text)
    assert secret is not None
    assert (await Browser(transport).log_in(api_key=secret[0])).status_code == 200
    # The key of an operator reads no memory.
    assert "Status" in (await operator.get("/sessions")).text


async def test_changes_by_hand(people: list[Person]) -> None:
    person = people[0]
    browser = person.browser
    new = "/memory/new?type=preferences"
    answer = await browser.submit(new, "/memory/save", **{"field.topic": "Tea", "field.content": "Likes *green* tea."})
    assert "<em>green</em>" in answer.text
    uri = f"viking://user/{person.name}/memories/preferences/Tea.md"
    edit = f"/memory/edit?uri={uri}"
    stale = await browser.get(edit)
    await browser.submit(edit, "/memory/save", **{"field.content": "Likes black tea."})
    assert (await person.agent.get_memory(uri))["content"] == "Likes black tea."

    # Saved on the version of before: refused, with both texts on the page, and saved once the conflict was seen.
    from tests.support.studio import form_fields

    fields = form_fields(stale.text, "/memory/save") | {"field.content": "Likes no tea."}
    refused = await browser.http.post("/memory/save", data=fields)
    assert refused.status_code == 409
    assert "Likes black tea." in refused.text and "Likes no tea." in refused.text
    again = form_fields(refused.text, "/memory/save")
    assert (await browser.http.post("/memory/save", data=again)).status_code == 303
    assert (await person.agent.get_memory(uri))["content"] == "Likes no tea."

    preview = await browser.get("/history/3/rollback")
    assert "Likes black tea." in preview.text
    done = await browser.submit("/history/3/rollback", "/history/3/rollback")
    assert "Revision 4" in done.text
    assert (await person.agent.get_memory(uri))["content"] == "Likes black tea."
    deleted = await browser.submit(f"/memory?uri={uri}", "/memory/delete")
    assert "Revision 5" in deleted.text
    assert "stands for a deletion" in (await browser.get(f"/memory?uri={uri}")).text
    assert "Tea.md" in (await browser.get(f"/tree?uri=viking://user/{person.name}/memories/preferences&as_of=4")).text


async def test_take_along_and_erase(people: list[Person]) -> None:
    giver, taker = people
    await remember(giver, "Mara likes green tea")
    export = await giver.browser.get("/data/export")
    assert export.headers["content-disposition"].startswith("attachment")
    imported = await taker.browser.submit("/data", "/data/import", files={"archive": ("export.tar.gz", export.content)})
    assert imported.status_code == 200, imported.text
    assert "Mara likes green tea" in (await taker.browser.get("/sessions/talk")).text
    refused = await taker.browser.submit("/data", "/data/erase", scope="user", confirm="somebody")
    assert refused.status_code == 400
    receipt = await taker.browser.submit("/data", "/data/erase", scope="session", session="talk", confirm=taker.name)
    assert "Receipt of an erasure" in receipt.text
    assert (await taker.browser.get("/sessions/talk")).status_code == 404
    path = receipt.url.path
    async with asyncio.timeout(30):
        while "nothing is left" not in (await taker.browser.get(path)).text:  # noqa: ASYNC110  # told to nobody
            await asyncio.sleep(0.1)


async def test_a_link_to_a_message_leads_to_its_page(people: list[Person]) -> None:
    person = people[0]
    session = await person.agent.create_session("long")
    await session.add_messages(
        [Message(role="user", id=f"m{n}", parts=[TextPart(f"Message {n}.")]) for n in range(1, 81)]
    )
    live = await person.browser.get("/sessions/long/message?id=m70&sequence=70")
    assert (live.url.path, live.url.query, live.url.fragment) == ("/sessions/long", b"from=51", "m-m70")
    await session.commit()
    # Links stay when it is archived, and need no position.
    for link in ("/sessions/long/message?id=m70&sequence=70", "/sessions/long/message?id=m70"):
        archived = await person.browser.get(link)
        assert archived.url.path == "/sessions/long/archives/1"
        assert "Message 70." in archived.text and "Message 50." not in archived.text
    first = (await person.browser.get("/sessions/long/archives/1")).text
    assert "Message 50." in first and "/sessions/long/archives/1?from=51" in first
    assert (await person.browser.get("/sessions/long/message?id=none")).status_code == 404


async def test_a_search_is_explained(people: list[Person]) -> None:
    person = people[0]
    for n in range(3):
        await person.agent.put_memory(
            "preferences", {"topic": f"Tea {n}", "content": "Likes green tea." + " More." * n}
        )
    last = (await person.agent.find("green tea", min_revision=3))["results"][-1]["uri"]
    for query, sentence in {
        "q=green tea": "It is among the results.",
        "q=green tea&limit=1": "Better results take all places",
        "q=green tea&type=events&tag=x&field=topic=Rye": "Filters exclude it: type, tag, field.",
        "q=zeppelin": "does not match it",
    }.items():
        page = (await person.browser.get(f"/search?{query}&why={last}")).text
        assert sentence in page, query
        assert ("The last result" in page) == ("green tea" in query and "type" not in query)
    # A search by itself asks for no reason.
    assert "Why is something not found?" in (await person.browser.get("/search?q=green tea")).text
    assert "It does not exist" in (await person.browser.get(f"/search?q=green tea&why={last}x")).text


async def test_a_server_that_is_away() -> None:
    """The page says so, with the reason, and the login works once the server is there."""
    async with studio("127.0.0.1:1") as transport:
        answer = await Browser(transport).get("/login")
    assert answer.status_code == 503
    assert "cannot be reached" in answer.text


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"host": "0.0.0.0", "certificate": "a.pem"},
        {"host": "192.0.2.1", "certificate": "a.pem", "key": "b.pem", "own_credentials": True},
    ],
)
def test_a_start_that_would_let_strangers_in(settings: dict[str, Any]) -> None:
    with pytest.raises(ListenError):
        StudioSettings(**settings).check()
