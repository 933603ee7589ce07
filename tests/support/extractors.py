"""Extractor processes with either engine, for tests that only use the server's API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.acceptance.processes import environment
from tests.doubles.messages_api import MessagesApi, Request, answer
from tests.support.fork_server import launch

SUMMARY = {
    "abstract": "A wish.",
    "topic": "Wishes",
    "intent": "say a wish",
    "result": "noted",
    "status": "done",
    "analysis": ["The user said a wish."],
    "primary_request": "Remember the wish.",
    "key_concepts": ["wish"],
    "pending_tasks": [],
}


def prefers_tea(request: Request) -> dict[str, Any]:
    """Returns what a model might answer to any input: one preference."""
    fields = {"topic": "Tea", "content": "Drinks green tea in the morning."}
    return {
        "reasoning": "It was said.",
        "write_operations": [
            {
                "memory_type": "preferences",
                "fields": [{"name": name, "value": value} for name, value in fields.items()],
                "peer_id": "",
                "ranges": [{"start": 1, "end": 1}],
                "reason": "said so",
                "abstract": "",
                "overview": "",
            }
        ],
        "edit_operations": [],
        "delete_operations": [],
        "summary": SUMMARY,
    }


def messages_api() -> MessagesApi:
    """A context manager for a model server that answers `prefers_tea` to everything."""
    api = MessagesApi()
    api.otherwise = answer(prefers_tea)
    return api


@contextlib.asynccontextmanager
async def extracting(engine: str, address: str, log: Path, api: MessagesApi | None = None) -> AsyncIterator[None]:
    """Runs an extractor process for the server during the block; `api`: where the engine `anthropic` finds its
    model."""
    settings = {}
    if api is not None:
        settings = {
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "any",
            # Without probes, so that each request belongs to a job.
            "RUNEKEEP_EXTRACTOR_STRUCTURED_OUTPUT": "on",
            "RUNEKEEP_EXTRACTOR_TOOLS": "on",
        }
    command = ("--server", address, "--engine", engine)
    with log.open("a") as written:
        extractor = launch(
            "runekeep_extractor", command, environment=environment(settings), stdout=written, stderr=written
        )
    try:
        yield
    finally:
        await asyncio.to_thread(extractor.kill)
        await asyncio.to_thread(extractor.wait)
