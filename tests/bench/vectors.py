"""How fast archived messages get their vectors, beside the bare model with the same texts.

    python -m tests.bench.vectors [--messages 1000] [--rounds 3] [--json]

One conversation is committed by the engine without a model, on SQLite. First without an embedder, then with a double of
an embedding service, which notes the texts as they are embedded and whose vectors cost nothing: the difference is what
vectors cost the server itself. Then in turns with the built-in embedder, from the end of the task until no passage
waits, while the server does little else, and with the bare model on as many threads, one text after the other.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from runekeep import AsyncClient, Message, TextPart
from runekeep_storage.embedders.minilm import MiniLm
from tests.acceptance.processes import processes
from tests.bench.conversations import long
from tests.bench.resources import processor_seconds
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi

MESSAGES_A_CALL = 50
TASK_SECONDS = 900.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Filled:
    """After the end of the task `waiting` passages got their vectors in `seconds`. The commit and its vectors took the
    server and its index `cpu_seconds`."""

    waiting: int
    seconds: float
    cpu_seconds: float


async def fill(messages: int, **settings: str) -> Filled:
    """Commits a conversation on a new server and waits for its vectors."""
    with (
        tempfile.TemporaryDirectory(prefix="runekeep-bench-") as folder,
        processes(Path(folder), prepared=False) as fleet,
    ):
        server = await asyncio.to_thread(lambda: fleet.server(**settings))
        fleet.extractor("extractor", "--engine", "offline")
        try:
            async with AsyncClient(fleet.address, account="bench", user="ada") as client:
                await _committed(client, "first", 2)
                await _embedded(client, await _committed(client, "second", 2))
                before = _cpu(server.pid, *server.children())
                task = await _committed(client, "talk", messages)
                began, waiting = time.monotonic(), (await client.get_task(task)).get("pending_passages", 0)
                await _embedded(client, task)
                return Filled(waiting, time.monotonic() - began, _cpu(server.pid, *server.children()) - before)
        finally:
            await asyncio.to_thread(server.kill)


async def _committed(client: AsyncClient, name: str, messages: int) -> str:
    session = await client.create_session(name)
    texts = [message.parts[0].text.text for message in long(messages)]
    for start in range(0, messages, MESSAGES_A_CALL):
        some = texts[start : start + MESSAGES_A_CALL]
        await session.add_messages([Message("user", [TextPart(text)]) for text in some])
    task = await client.wait_task((await session.commit())["task_id"], timeout=TASK_SECONDS)
    assert task["status"] == "completed", task
    return str(task["task_id"])


async def _embedded(client: AsyncClient, task: str) -> None:
    async with asyncio.timeout(TASK_SECONDS):
        while True:
            if not (await client.get_task(task)).get("pending_passages"):
                return
            await asyncio.sleep(LOOK_SECONDS)


def _cpu(*pids: int) -> float:
    return sum(map(processor_seconds, pids))


def bare(model: MiniLm, texts: list[str]) -> float:
    """Returns how many texts a second the model embeds by itself."""
    began = time.monotonic()
    for text in texts:
        model.run([text])
    return len(texts) / (time.monotonic() - began)


async def measure(messages: int, rounds: int, progress: Progress) -> dict[str, Any]:
    step = progress.add_task("vectors", total=2 * rounds + 2)
    without = await fill(messages, RUNEKEEP_EMBEDDER="none")
    progress.advance(step)
    with EmbeddingsApi() as api:
        remote = await fill(
            messages,
            RUNEKEEP_EMBEDDER="openai",
            RUNEKEEP_EMBEDDING__URL=api.url,
            RUNEKEEP_EMBEDDING__MODEL=MODEL,
            RUNEKEEP_EMBEDDING__DIMENSION=str(DIMENSION),
        )
        texts = [text for request in api.requests for text in request.texts][-messages:]
    progress.advance(step)
    model = MiniLm(os.cpu_count() or 1)
    rates, alone = [], []
    for _ in range(rounds):
        alone.append(await asyncio.to_thread(bare, model, texts))
        progress.advance(step)
        filled = await fill(messages)
        assert filled.waiting > messages / 2, "most vectors were made before the end of the task: take more messages"
        rates.append(filled.waiting / filled.seconds)
        progress.advance(step)
    return {
        "bench": "vectors",
        "messages": messages,
        "characters_a_text": round(statistics.mean(map(len, texts))),
        "built_in_a_second": statistics.median(rates),
        "bare_a_second": statistics.median(alone),
        "share_of_bare": statistics.median(rates) / statistics.median(alone),
        "own_cpu_ms": (remote.cpu_seconds - without.cpu_seconds) * 1000 / messages,
        "load_average": os.getloadavg()[1],
    }


def table(made: dict[str, Any]) -> Table:
    drawn = Table(title=f"Vectors of {made['messages']:,} messages of {made['characters_a_text']} characters")
    drawn.add_column("")
    drawn.add_column("", justify="right")
    drawn.add_row("bare model, texts a second", f"{made['bare_a_second']:,.1f}")
    drawn.add_row("built-in embedder, texts a second", f"{made['built_in_a_second']:,.1f}")
    drawn.add_row("share of the bare model", f"{made['share_of_bare']:.2f}")
    drawn.add_row("processor time of the server for a vector that a service makes, ms", f"{made['own_cpu_ms']:.2f}")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    given = parser.parse_args()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        made = asyncio.run(measure(given.messages, given.rounds, progress))
    if not given.json:
        Console().print(table(made))
    print(json.dumps(made))


if __name__ == "__main__":
    main()
