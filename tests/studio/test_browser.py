"""Every page of the studio in a real browser, beside a real server with an extractor."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runekeep import Client, Message, TextPart
from tests.acceptance.processes import processes
from tests.studio.pages import PAGES, PREFERENCES, USER, attack, remember, review, running_studio

pytestmark = pytest.mark.studio

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 380, "height": 800}


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client, str]]:
    """The studio's link, a client of the same user, and the id of a task."""
    with (
        processes(tmp_path_factory.mktemp("studio")) as started,
        Client(started.server().address, user=USER) as client,
    ):
        started.extractor("worker")
        task = remember(client)
        with running_studio(started.address, "--operator") as link:
            yield link, client, task


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without its sandbox, since CI runs as root; it sees no page but ours.
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A page that is logged in. It notes what went wrong in it, and what it asked of other hosts."""

    def __init__(self, chromium: Any, link: str, **context: Any) -> None:
        self.link = link
        self.context = chromium.new_context(viewport=WIDE, **context)
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        self.page.on("request", lambda request: self._note(request.url))
        self.go("/login")
        self.page.get_by_label("User").fill(USER)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("heading", name="Overview").wait_for()

    def _note(self, url: str) -> None:
        if not url.startswith((self.link, "data:")):
            self.troubles.append(f"asked for {url}")

    def go(self, path: str) -> None:
        self.page.goto(self.link + path)


@pytest.fixture
def visitor(chromium: Any, link: tuple[str, Client, str]) -> Iterator[Visitor]:
    made = Visitor(chromium, link[0], timezone_id="Asia/Tokyo", locale="en-GB")
    yield made
    made.context.close()


def test_a_commit_from_its_start_to_its_end_and_back(visitor: Visitor, link: tuple[str, Client, str]) -> None:
    page = visitor.page
    session = link[1].create_session("lunch")
    session.add_messages([Message(role="user", parts=[TextPart("I prefer oat milk in my coffee.")])])
    visitor.go("/sessions/lunch")
    page.get_by_role("button", name="Commit 1 live messages").click()
    page.locator(".panel .state-completed").wait_for()
    # The end of the stream loads the page once more, with what was recorded of the attempt.
    page.get_by_text("Attempt 1:").wait_for()
    page.get_by_role("link", name="What it changed").click()
    page.get_by_text("oat milk").first.wait_for()
    page.get_by_role("link", name="take it back …").click()
    page.get_by_role("button", name="Take back").click()
    page.get_by_role("heading", name="Revision").wait_for()
    assert "rollback" in page.goto(visitor.link + "/history").text()
    assert not [hit for hit in link[1].tree(PREFERENCES)["entries"] if "milk" in hit["name"]]
    # Times are in the browser's zone.
    shown = page.locator("time").first
    assert shown.get_attribute("data-local") == "yes"
    assert visitor.troubles == []


def test_a_proposal_is_edited_accepted_and_refused(visitor: Visitor, link: tuple[str, Client, str]) -> None:
    page = visitor.page
    task = review(link[1], "picnic", "I prefer plum jam on my toast.", "I prefer quiet trains to loud buses.")
    visitor.go(f"/tasks/{task}")
    page.get_by_role("link", name="review", exact=True).click()
    page.get_by_role("button", name="Accept all that fit").wait_for()
    page.locator("ins", has_text="plum jam").first.wait_for()
    visitor.go("/tree")
    page.get_by_role("link", name="Proposals to review").click()
    page.locator(f"a[href='/proposals/{task}']").click()

    page.get_by_text("Edit 1").click()
    page.locator("#operation-1 textarea").last.fill("Prefers apricot jam.")
    page.get_by_role("button", name="Save 1").click()
    page.locator("#operation-1 .badge", has_text="edited").wait_for()
    page.get_by_role("button", name="Accept 1").click()
    page.locator("#operation-1 .state-accepted").wait_for()
    page.get_by_role("button", name="Refuse 2").click()
    page.locator("#operation-2 .state-refused").wait_for()
    page.locator("#operation-1").get_by_role("link", name="Revision").click()
    page.get_by_text("apricot").first.wait_for()
    found = link[1].get_proposal(task)
    assert [one["state"] for one in found["operations"]] == ["accepted", "refused"]
    assert visitor.troubles == []


def test_an_erasure_with_its_receipt(visitor: Visitor, link: tuple[str, Client, str]) -> None:
    page = visitor.page
    link[1].create_session("secret").add_messages([Message(role="user", parts=[TextPart("My number is 123.")])])
    visitor.go("/sessions/secret")
    page.get_by_role("link", name="erase").click()
    page.get_by_label("To confirm").fill(USER)
    page.get_by_role("button", name="Erase for good").click()
    page.locator(".state-verified").wait_for(timeout=60_000)
    visitor.go("/sessions/secret")
    page.get_by_role("heading", name="There is nothing of that name").wait_for()


def test_a_budget_that_is_moved(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(PAGES["recall"])
    before = page.locator("#result h2").first.inner_text()
    page.locator("#budget").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    page.wait_for_url("**budget=800**")
    page.get_by_role("heading", name="of 800 tokens").wait_for()
    page.go_back()
    page.get_by_role("heading", name="of 400 tokens").wait_for()
    assert page.locator("#result h2").first.inner_text() == before
    assert visitor.troubles == []


def test_a_search_is_explained(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(PAGES["memory"])
    page.get_by_role("link", name="Why is it not found?").click()
    page.get_by_role("searchbox").fill("When does the kiln arrive?")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("heading", name="This document").wait_for()
    assert page.locator(".why .parts").count() == 2, "its score beside that of the last result"
    # Of a message, with a filter that excludes it.
    visitor.go(PAGES["session"])
    page.get_by_role("link", name="not found?").first.click()
    page.get_by_role("searchbox").fill("kiln")
    page.locator("summary", has_text="Filters").click()
    page.get_by_label("Type").fill("profile")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("Filters exclude it: type.").wait_for()
    page.go_back()
    page.get_by_text("The page then says why").wait_for()
    assert visitor.troubles == []


def test_stored_texts_run_nowhere(visitor: Visitor, link: tuple[str, Client, str]) -> None:
    attack(link[1])
    uri = f"{PREFERENCES}/Attack.md"
    for path in (
        "/",
        "/sessions",
        "/sessions/attack",
        "/turns",
        f"/tree?uri={PREFERENCES}",
        f"/memory?uri={uri}",
        f"/memory/edit?uri={uri}",
        "/search?q=pwned",
        "/recall?q=pwned",
        "/history/diff",
        f"/history?uri={uri}",
    ):
        visitor.go(path)
        for summary in visitor.page.locator("main summary").all():
            summary.click()
    visitor.page.wait_for_timeout(300)
    assert visitor.troubles == []


def test_by_keyboard_on_a_phone(visitor: Visitor) -> None:
    page = visitor.page
    page.set_viewport_size(NARROW)
    visitor.go("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.locator("#menu > summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Search", exact=True).press("Enter")
    page.wait_for_url("**/search")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page(chromium: Any, link: tuple[str, Client, str], scheme: str, tmp_path: Path) -> None:
    """No page is wider than a phone, heavier than 300 KB, or shuts people out by what axe calls serious."""
    from axe_playwright_python.sync_playwright import Axe

    visitor = Visitor(chromium, link[0], color_scheme=scheme)
    found = []
    for name, path in PAGES.items():
        visitor.troubles.clear()
        visitor.go(path.format(task=link[2]))
        for violation in Axe().run(visitor.page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                found.append((name, violation["id"], [node["html"][:200] for node in violation["nodes"][:3]]))
        visitor.page.set_viewport_size(NARROW)
        width = visitor.page.evaluate("document.documentElement.scrollWidth")
        if width > NARROW["width"]:
            found.append((name, "width", width))
        visitor.page.set_viewport_size(WIDE)
        weight = visitor.page.evaluate(
            "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
            ".reduce((sum, entry) => sum + entry.decodedBodySize, 0)"
        )
        if weight > 300_000:
            found.append((name, "weight", weight))
        # A page about an error has a status that the browser notes.
        if name != "error" and visitor.troubles:
            found.append((name, "console", visitor.troubles[:]))
    assert found == []
    visitor.context.close()
