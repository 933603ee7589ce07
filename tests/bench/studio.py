"""What the pages of the studio take beside a space of 10,000 memories.

    python -m tests.bench.studio [--memories 10000] [--calls 15] [--page docs/bench/studio.md]

One real server with the built-in embedder on SQLite and Qdrant Edge, an extractor, and the studio as a process; one
browser without a screen, one page at a time. The space holds the conversation of `tests.studio.pages`, so that every
page has something to show, the memories in one directory, a memory of 100 versions, and an archive of 1,000 messages.
A page weighs what a browser loads for it for the first time: the page and the files of the studio that it names.
"""

import argparse
import asyncio
import os
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from runekeep import Client, Message, PutMemory, TextPart
from runekeep.client.memories.results import SearchResults
from tests.acceptance.processes import processes
from tests.bench.conversations import long
from tests.bench.figures import p95
from tests.studio.pages import PAGES, USER, remember, running_studio
from tests.support.studio import Browser

MESSAGES, VERSIONS = 1_000, 100
CHARACTERS = 60
"""Of each memory and message: embedding long texts takes minutes."""
BATCH = 100
"""Memories, or messages, of one call."""
WANTED_MILLISECONDS, WANTED_BYTES = 100, 300_000
DIARY = "diary"
_MEMORIES = f"viking://user/{USER}/memories"

LARGE = {
    "tree, the large directory": f"/tree?uri={_MEMORIES}/preferences",
    "tree, as of a revision": f"/tree?uri={_MEMORIES}/preferences&as_of=60",
    "memory of 100 versions": f"/memory?uri={_MEMORIES}/preferences/Versions.md",
    "archive of 1,000 messages": f"/sessions/{DIARY}/archives/1",
    "a late message of it": f"/sessions/{DIARY}/message?id={{message}}&sequence={MESSAGES}",
    "what a revision of 100 changed": "/history/50",
    "difference of 100 revisions": "/history/diff?from=10&to=110",
    "search of a common word": "/search?q=telescope+night&limit=50",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """Of one page: milliseconds of each call, and the bytes of the page and of the files that it names."""

    name: str
    times: Sequence[float]
    page_bytes: int
    file_bytes: int

    @property
    def weight(self) -> int:
        return self.page_bytes + self.file_bytes

    @property
    def row(self) -> tuple[str, ...]:
        middle, high = statistics.median(self.times), p95(self.times)
        return self.name, f"{middle:.0f}", f"{high:.0f}", f"{self.weight / 1000:.0f}"


def fill(client: Client, memories: int) -> str:
    """Makes the space large. Returns the id of the last message of the large archive."""
    texts = [message.parts[0].text.text[:CHARACTERS] for message in long(memories + MESSAGES)]
    said, kept = texts[:MESSAGES], texts[MESSAGES:]
    for start in range(0, len(kept), BATCH):
        client.write_memories(
            [
                PutMemory("preferences", {"topic": f"Night {start + number}", "content": text})
                for number, text in enumerate(kept[start : start + BATCH])
            ]
        )
    made = client.put_memory("preferences", {"topic": "Versions", "content": "0"})
    for number in range(1, VERSIONS):
        client.edit_memory(made["uri"], {"content": f"{number}"}, base_version=number)
    session = client.session(DIARY)
    last = ""
    for start in range(0, MESSAGES, BATCH):
        some = [Message(role="user", parts=[TextPart(text)]) for text in said[start : start + BATCH]]
        last = session.add_messages(some)["messages"][-1]["id"]
    committed = session.commit({"self": {"enabled": False}})
    assert client.wait_task(committed["task_id"])["status"] == "completed"
    while not _is_searchable(client.find("anything")):
        time.sleep(0.5)
    return last


def _is_searchable(found: SearchResults) -> bool:
    """Returns whether nothing waits for its vector: making vectors would slow the pages."""
    pending = found["pending_memories"] + found["pending_passages"]
    return not pending and not found["degraded"] and found["revision"] == found["latest_revision"]


async def measure(link: str, pages: Mapping[str, str], calls: int) -> list[Figure]:
    browser = Browser(httpx.AsyncHTTPTransport(), link)
    await browser.log_in(user=USER)
    figures = []
    for name, path in pages.items():
        times = []
        for _ in range(calls):
            begun = time.perf_counter()
            # Without the redirect of a link to a message: its target is measured as a page of its own.
            answer = await browser.http.get(path)
            times.append(1000 * (time.perf_counter() - begun))
        assert answer.status_code < 400 or name == "error", (name, answer.status_code, answer.text)
        names = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', answer.text))
        files = [len((await browser.get(file)).content) for file in names]
        figures.append(Figure(name, times, len(answer.content), sum(files)))
    await browser.http.aclose()
    return figures


HEAD = ("page", "median ms", "95 % less than", "weight KB")


def write_page(path: Path, figures: Sequence[Figure], memories: int, calls: int, load: float) -> None:
    """Writes the page of the docs."""
    slow = [one.name for one in figures if statistics.median(one.times) >= WANTED_MILLISECONDS]
    heavy = [one.name for one in figures if one.weight > WANTED_BYTES]
    rows = "\n".join(f"| {' | '.join(one.row)} |" for one in figures)
    path.write_text(
        f"""# What pages of the studio take

Written by `make bench-studio` ([`tests/bench/studio.py`](../../tests/bench/studio.py)) on {datetime.now(UTC):%Y-%m-%d},
on {os.cpu_count()} cores. One real server with the built-in embedder on SQLite and Qdrant Edge, and the studio beside
it; one page at a time, {calls} times each. The space holds {memories:,} memories in one directory, a memory of
{VERSIONS} versions and an archive of {MESSAGES:,} messages. A page weighs what a browser loads for it for the first
time. The load average was {load:.1f}.

| {" | ".join(HEAD)} |
|---|---:|---:|---:|
{rows}

- **What we want**: a median below {WANTED_MILLISECONDS} ms. {_missed("Slower", slow)}
- **What we want**: no page above {WANTED_BYTES // 1000} KB. {_missed("Heavier", heavy)} `make test-studio` checks it
  for the pages of a small space.
""",
        encoding="utf-8",
    )


def _missed(how: str, names: Sequence[str]) -> str:
    return f"{how}: {', '.join(names)}." if names else "All pages reach it."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=15)
    parser.add_argument("--page", type=Path, help="page of the docs to write")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        processes(Path(folder), prepared=False) as started,
        Client(started.server().address, user=USER) as client,
    ):
        started.extractor("worker")
        task = remember(client)
        message = fill(client, given.memories)
        with running_studio(started.address, "--operator") as link:
            pages = {
                name: path.format(task=task, message=message).partition("#")[0]
                for name, path in (PAGES | LARGE).items()
            }
            figures = asyncio.run(measure(link, pages, given.calls))
    table = Table(*HEAD)
    for one in figures:
        table.add_row(*one.row)
    Console().print(table)
    if given.page:
        write_page(given.page, figures, given.memories, given.calls, os.getloadavg()[1])


if __name__ == "__main__":
    main()
