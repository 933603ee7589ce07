"""The TypeScript client in clients/typescript against real processes: its own tests, a connection that breaks, its
package, a browser, and the middleware for the AI SDK. `make test-typescript` builds it before."""

import functools
import http.server
import json
import re
import shutil
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from runekeep import AsyncClient
from tests.acceptance.processes import ROOT, Processes, processes, run
from tests.doubles.chat_api import ChatApi, answer
from tests.support.secured import secured
from tests.support.serving import serving
from tests.support.tours import broken_tour

PACKAGE = ROOT / "clients" / "typescript"
TOUR = ["node", "build/test/tour.js"]
# The AI SDK asks for a newer Node than Debian has, which comes as a package too.
NODE_22 = ["npx", "--yes", "--package", "node@22", "--", "node"]
QUESTION = "Which tea shall I plant for Robin?"
ANSWER = "Green tea, as ever."
STEPS = ["session", "added", "refused", "committed", "ended", "found", "document", "history", "deleted"]
"""Of the tour, without the events of the task."""

pytestmark = [pytest.mark.languages, pytest.mark.timeout(400)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        started.server()
        yield started


@pytest.mark.parametrize(
    ("node", "tests"),
    [(["node"], ["client.test.js", "connection.test.js"]), (NODE_22, ["ai-sdk.test.js"])],
    ids=["client", "AI SDK"],
)
def test_its_own_tests_pass_beside_a_server(fleet: Processes, node: list[str], tests: list[str]) -> None:
    fleet.extractor("worker", "--engine", "offline")
    files = [PACKAGE / "build" / "test" / test for test in tests]
    with serving("http", "--address", fleet.address) as url:
        said = run(
            *(*node, "--test", "--test-reporter=tap", *files),
            cwd=PACKAGE,
            RUNEKEEP_TEST_ADDRESS=fleet.address,
            RUNEKEEP_TEST_HTTP=url,
        ).stdout
    passed = re.search(r"^# pass (\d+)$", said, re.MULTILINE)
    assert passed and int(passed[1]) >= 7, said[-2000:]


async def test_a_watch_goes_on_when_its_connection_breaks(fleet: Processes) -> None:
    look_at(await broken_tour(fleet, TOUR, PACKAGE), "typescript-tour")


async def test_a_watch_goes_on_with_a_key_over_tls(tmp_path: Path) -> None:
    with processes(tmp_path) as fleet:
        client, extractor = secured(fleet, tmp_path, "nils")
        look_at(await broken_tour(fleet, TOUR, PACKAGE, client, extractor), "nils")


def test_a_certificate_of_another_authority_is_named(tmp_path: Path) -> None:
    with processes(tmp_path) as fleet:
        secured(fleet, tmp_path, "nils")
        code = (
            'import { Client } from "./build/src/index.js";\n'
            f'await new Client({{ address: "https://{fleet.address}", user: "nils" }}).recall("tea")'
            ".catch((error) => console.log(error.name, error.message));"
        )
        said = run("node", "--input-type=module", "--eval", code, cwd=PACKAGE).stdout
    assert said.startswith("TlsError") and "caFile" in said


def test_its_package_runs_the_first_example_of_its_page(fleet: Processes, tmp_path: Path) -> None:
    fleet.extractor("worker", "--engine", "offline")
    application = tmp_path / "application"
    application.mkdir()
    pack = ("npm", "pack", "--json", "--ignore-scripts", "--pack-destination")
    packed = json.loads(run(*pack, tmp_path, cwd=PACKAGE).stdout)
    assert packed[0]["version"] == version("runekeep")
    files = [one["path"] for one in packed[0]["files"]]
    assert "build/src/index.d.ts" in files and not any("test" in file for file in files)
    run("npm", "install", "--no-audit", "--no-fund", tmp_path / packed[0]["filename"], cwd=application)
    for page in (PACKAGE / "README.md", ROOT / "docs" / "start" / "typescript.md"):
        example = re.search(r"^```js\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        assert example, page
        (application / "example.mjs").write_text(example[1])
        said = run("node", "example.mjs", cwd=application, RUNEKEEP_ADDRESS=fleet.address).stdout
        assert "Lisbon" in said


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    """The origin of a page that has the client for browsers."""
    folder = tmp_path / "page"
    bundle = ("--bundle", "--format=esm", f"--outfile={folder / 'page.js'}")
    run(PACKAGE / "node_modules" / ".bin" / "esbuild", "test/browser.ts", *bundle, cwd=PACKAGE)
    script = '<script type="module" src="page.js"></script>'
    (folder / "index.html").write_text(f"<!doctype html><title>Page</title>{script}")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_page_of_an_allowed_origin_calls_from_a_browser(fleet: Processes, page: str) -> None:
    from playwright.sync_api import sync_playwright

    fleet.extractor("worker", "--engine", "offline")
    with sync_playwright() as playwright:
        # Without its sandbox, since CI runs as root; it sees no page but ours.
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page)
        with serving("http", "--address", fleet.address, "--allow-origin", page) as url:
            said: dict[str, Any] = tab.evaluate("url => converse(url)", url)
        with serving("http", "--address", fleet.address) as url:
            other = tab.evaluate("url => refused(url)", url)
        browser.close()

    assert (said["kinds"][0], said["kinds"][-1], said["state"]) == ("snapshot", "ended", "completed")
    assert "Porto" in said["text"] and said["reason"] == "RESOURCE_NOT_FOUND"
    assert other.startswith("UnavailableError") and f"--allow-origin {page}" in other


def asked(url: str, address: str) -> str:
    example = ROOT / "examples" / "frameworks" / "vercel-ai"
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any", "MODEL": "gpt-4o-mini", "RUNEKEEP_ADDRESS": address}
    return run(*NODE_22, "build/agent.js", QUESTION, cwd=example, **variables).stdout


async def test_the_example_of_the_ai_sdk_answers_with_memory(fleet: Processes) -> None:
    double = ChatApi(streams=True)
    double.otherwise = answer(ANSWER)
    async with AsyncClient(fleet.address, user="robin") as client:
        written = await client.put_memory("preferences", {"topic": "Tea", "content": "Robin drinks green tea."})
        await client.find("tea", min_revision=written.revision)
        with double as api:
            said = asked(api.url, fleet.address)
            request = str(api.requests[-1].body["messages"])
        session = await client.get_session("garden")
        roles = [message.role async for message in session.messages("all")]

    assert ANSWER in said and roles == ["user", "assistant"]
    assert "You are a gardener." in request and "Robin drinks green tea." in request


def test_the_example_of_the_ai_sdk_answers_while_memory_is_away() -> None:
    double = ChatApi(streams=True)
    double.otherwise = answer(ANSWER)
    with double as api:
        said = asked(api.url, "127.0.0.1:1")
        request = str(api.requests[-1].body["messages"])

    assert ANSWER in said
    assert QUESTION in request and "<runekeep-memory>" not in request


def look_at(steps: list[dict[str, Any]], user: str) -> None:
    said = {step["step"]: step for step in steps}
    assert [step["step"] for step in steps if step["step"] not in ("event", "resumed")] == STEPS
    assert said["session"]["uri"].startswith(f"viking://user/{user}/sessions/")
    assert said["session"]["created"] is True and said["added"]["sequences"] == [1, 2]
    error = said["refused"].get("error", said["refused"])
    assert (error["reason"], error["fields"]) == ("FIELD_INVALID", ["messages[0].parts"])
    assert said["ended"]["state"].endswith("COMPLETED") and said["ended"]["outcome"].endswith("APPLIED")
    best = said["found"]["results"][0]
    # The message itself may be found before the memory that came from it; nothing else may.
    places = [one["uri"] for one in said["found"]["results"]]
    assert said["document"]["uri"] in places[:2]
    assert all(place == said["document"]["uri"] or place.startswith(said["session"]["uri"]) for place in places)
    assert "in the morning" in said["document"]["text"]
    assert best["score"] > 0 and {"dense", "sparse"} <= parts(best["parts"])
    numbers = [one["number"] if isinstance(one, dict) else one for one in said["history"]["revisions"]]
    assert numbers == [said["ended"]["revision"]]


def parts(named: dict[str, float] | list[dict[str, object]]) -> set[str]:
    return set(named) if isinstance(named, dict) else {str(part["name"]) for part in named}
