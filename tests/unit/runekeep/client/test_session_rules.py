"""Sessions that are made and changed: what the client and the command ask for, and what they show."""

import json
from typing import Any

import pytest

from runekeep import AsyncClient
from runekeep.client.sessions.results import AutoCommit
from runekeep.v1 import session_service_pb2
from tests.unit.runekeep.cli.cli_answers import run
from tests.unit.runekeep.server_double import ServerDouble

RULES: AutoCommit = {"pending_tokens": 4000, "message_count": 40, "idle": 1.5, "keep_recent_count": 4}


async def test_rules_go_out_and_come_back(server: ServerDouble) -> None:
    rules = session_service_pb2.AutoCommit(pending_tokens=4000, message_count=40, keep_recent_count=4)
    rules.idle.FromMilliseconds(1500)
    kept = session_service_pb2.Session(session_id="s", auto_commit=rules, live_tokens=7)
    server.script("CreateSession", session_service_pb2.CreateSessionResponse(session=kept))
    server.script("UpdateSession", session_service_pb2.UpdateSessionResponse(session=kept))
    async with AsyncClient(server.address) as client:
        session = await client.create_session("s", auto_commit=RULES)
        info = await session.update(auto_commit=RULES)
    assert server.requests("CreateSession")[0].auto_commit == rules
    assert server.requests("UpdateSession")[0].auto_commit == rules
    assert info["auto_commit"] == RULES and info["live_tokens"] == 7
    # What is read can be written again.
    assert info["auto_commit"] is not None
    async with AsyncClient(server.address) as client:
        await (await client.get_session("s")).update(auto_commit=info["auto_commit"])
    assert server.requests("UpdateSession")[1].auto_commit == rules


async def test_only_what_is_given_is_changed(server: ServerDouble) -> None:
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        await session.update(title="Tea")
        await session.update(title="", memory_policy={})
        await session.update(auto_commit={}, request_id="mine")
        with pytest.raises(ValueError, match="title, memory_policy, auto_commit"):
            await session.update()
        with pytest.raises(ValueError, match="not idles"):
            misspelt: Any = {"idles": 5}
            await session.update(auto_commit=misspelt)
    first, second, third = server.requests("UpdateSession")
    assert (list(first.update_mask.paths), first.title) == (["title"], "Tea")
    assert list(second.update_mask.paths) == ["title", "memory_policy"] and second.HasField("memory_policy")
    assert list(third.update_mask.paths) == ["auto_commit"] and third.request_id == "mine"
    assert third.auto_commit == session_service_pb2.AutoCommit()


async def test_the_commit_that_messages_made_is_answered(server: ServerDouble) -> None:
    made = session_service_pb2.CommitSessionResponse(status=1, task_id="t1", archive_uri="viking://a", archived=True)
    server.script(
        "AddMessages",
        session_service_pb2.AddMessagesResponse(auto_commit=made),
        session_service_pb2.AddMessagesResponse(live_message_count=1),
    )
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        first, second = await session.add_messages([]), await session.add_messages([])
    told = {"status": "accepted", "task_id": "t1", "archive_uri": "viking://a", "archived": True}
    assert (first["auto_commit"], second["auto_commit"]) == (told, None)


def test_the_command_asks_for_what_its_options_say(full: ServerDouble) -> None:
    rules = ["--auto-commit-tokens", "4000", "--auto-commit-messages", "40", "--auto-commit-idle", "1.5"]
    policy = ["--policy", '{"peer": {"enabled": true}}']
    run(full, "session", "create", "s1", "--title", "Tea", *policy, *rules, "--auto-commit-keep", "4")
    asked = full.requests("CreateSession")[0]
    assert (asked.session_id, asked.title, asked.memory_policy.peer.enabled) == ("s1", "Tea", True)
    assert (asked.auto_commit.pending_tokens, asked.auto_commit.message_count) == (4000, 40)
    assert (asked.auto_commit.idle.ToMilliseconds(), asked.auto_commit.keep_recent_count) == (1500, 4)

    run(full, "session", "update", "s1", "--auto-commit-idle", "600")
    run(full, "session", "update", "s1", "--no-auto-commit", "--title", "")
    changed, ended = full.requests("UpdateSession")
    assert list(changed.update_mask.paths) == ["auto_commit"] and changed.auto_commit.idle.seconds == 600
    assert sorted(ended.update_mask.paths) == ["auto_commit", "title"]
    assert ended.auto_commit == session_service_pb2.AutoCommit()


def test_people_see_when_a_session_commits_by_itself(server: ServerDouble) -> None:
    session = session_service_pb2.Session(uri="viking://user/u/sessions/s", message_count=9, live_message_count=1)
    session.live_tokens = 1
    server.script("GetSession", session_service_pb2.GetSessionResponse(session=session))
    shown = run(server, "session", "show", "s").stdout
    assert "9 messages, 1 of them (1 token) not yet committed" in shown and "by itself" not in shown
    session.auto_commit.CopyFrom(session_service_pb2.AutoCommit(pending_tokens=4000, message_count=40))
    session.auto_commit.idle.FromSeconds(600)
    session.auto_commit.keep_recent_count = 4
    server.script("UpdateSession", session_service_pb2.UpdateSessionResponse(session=session))
    shown = " ".join(run(server, "session", "update", "s", "--title", "x").stdout.split())
    assert (
        "Commits by itself at 4000 live tokens, or at 40 live messages, but for the newest 4, or all of them after"
        " 600 s without a message." in shown
    )
    told = json.loads(run(server, "session", "update", "s", "--title", "x", "--json").stdout)
    assert told["auto_commit"]["idle"] == 600.0


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--auto-commit-idle", "5", "--no-auto-commit"],
        ["--policy", "{"],
        ["--policy", "[]"],
        ["--auto-commit-messages", "-1"],
    ],
)
def test_a_change_that_says_nothing_sound_is_wrong_usage(server: ServerDouble, options: list[str]) -> None:
    run(server, "session", "update", "s", *options, status=2)
    assert not server.requests("UpdateSession")
