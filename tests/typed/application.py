# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""What type checkers must know about the Python client. It is checked, not run: see `__main__.py`."""

from collections.abc import AsyncGenerator, Iterator
from datetime import datetime
from typing import assert_type

from runekeep import AsyncClient, Client
from runekeep.client.history import Revision
from runekeep.client.memories.results import Memory, RecallEntry, RecallResult
from runekeep.client.sessions.results import AutoCommitRules
from runekeep.client.tasks.results import CommitResult, Task


def blocking(client: Client) -> None:
    recalled = client.recall("Where do I live?", token_budget=500)
    assert_type(recalled, RecallResult)
    assert_type(recalled.entries, list[RecallEntry])
    assert_type(recalled.entries[0].uri, str)
    assert_type(recalled.entries[0].time, datetime | None)
    with client.session("chat_001") as session:
        assert_type(session.add_message("user", "I live in Lisbon").sequence, int)
        assert_type(session.info().auto_commit, AutoCommitRules | None)
        assert_type(session.wait(), Task | None)
        session.update(auto_commit=session.info().auto_commit, memory_policy=session.info().memory_policy)
        session.select_turns(session.turn_context("turn_7", "reconciler"), turn_ids=["turn_3"])
    assert_type(client.wait_task("task").result, CommitResult | None)
    assert_type(client.revisions(), Iterator[Revision])
    assert_type(client.admin.status().start_time, datetime)


def updates(client: Client) -> None:
    for update in client.watch_task("task"):
        if update.kind == "ended":
            assert_type(update.task, Task)
        elif update.kind == "progress":
            assert_type(update.progress.percent, int)
    for answer in client.ask("Where do I live?"):
        if answer.kind == "statement":
            assert_type(answer.text, str)


async def awaited(client: AsyncClient) -> None:
    assert_type((await client.recall("Where do I live?")).text, str)
    assert_type(client.versions("viking://user/robin/memories/profile.md"), AsyncGenerator[Memory, None])
    async with client.session("chat_001") as session:
        assert_type((await session.commit()).task_id, str)


def refused(client: Client) -> None:
    found = client.find("Where do I live?")
    print(found.reslts)  # type: ignore[attr-defined]
    client.recall("Where do I live?", budget=50)  # type: ignore[call-arg]
    client.find("Where do I live?", limit="5")  # type: ignore[arg-type]
