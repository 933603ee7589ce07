"""The audit of the seeds as one scenario: a raw worker, a scripted model and the engine without a model do what the
seeds say of policies, routing, archives, diffs and execution. `docs/design/seeds.md` lists every behaviour."""

import json
from typing import Any

import grpc

from runekeep import AsyncClient, Client, ContextPart, ImagePart, Session, TextPart, ToolPart
from runekeep.v1 import extractor_service_pb2 as pb
from tests.acceptance.processes import Processes
from tests.acceptance.test_anthropic_end_to_end import WAIT_SECONDS, with_model
from tests.doubles.messages_api import MessagesApi, Request, answer, tool_use
from tests.support.extractors import SUMMARY
from tests.support.worker import Worker, edit, write

ON, OFF = {"enabled": True}, {"enabled": False}
SECTIONS = ("# Session Summary", "**One-line overview**", "## Analysis", "## Primary Request and Intent")
MORE_SECTIONS = ("## Key Concepts", "## Pending Tasks")
OUTPUT = "line of a long output\n" * 1500
"""Longer than the 20,000 characters that stay in a message."""


async def test_a_raw_worker(fleet: Processes) -> None:
    """One session with a peer, images, tools and usage; three commits with different policies."""
    fleet.server()
    async with AsyncClient(fleet.address, user="mara") as client, grpc.aio.insecure_channel(fleet.address) as channel:
        session = await client.create_session("audit", memory_policy={"peer": ON, "session_skills": ON})
        policy = (await session.info())["memory_policy"]
        assert (await session.update(memory_policy=policy))["memory_policy"] == policy
        await session.add_message("user", [TextPart("I moved to Bergen."), ImagePart("https://example.com/b.png")])
        await session.add_message("user", [TextPart("I am allergic to nuts.")], peer_id="carol")
        await session.add_message(
            "assistant",
            [
                ContextPart("viking://user/memories/profile.md", "who she is"),
                ToolPart("t1", "grep", "code-search", {"q": "nuts"}, OUTPUT, "completed", 120, 30),
                ToolPart("t2", "ls", input={"path": "/"}, output="no such directory", status="error"),
            ],
        )
        skill = {"uri": "viking://agent/skills/code-search", "input": "nuts", "output": "3 files", "success": True}
        await session.used(contexts=["viking://user/memories/profile.md"], skill=skill)
        commit = await session.commit()
        archive = "viking://user/mara/sessions/audit/history/archive_001"
        assert commit == {**commit, "status": "accepted", "archive_uri": archive, "archived": True}
        assert (await session.info())["live_message_count"] == 0
        # The plan of a commit is fixed when it is made.
        await session.update(memory_policy={"self": OFF})

        async with Worker(channel) as worker:
            job = await worker.take()
            plan = job.plan
            assert (plan.allow_self, list(plan.allowed_peer_ids), plan.session_skills) == (True, ["carol"], True)
            assert {"trajectories", "experiences"} == set(plan.execution_types)
            given = await worker.input(job.lease)
            assert [message.peer_id for message in given.messages] == ["", "carol", ""]
            called = [part.tool for part in given.messages[2].parts if part.HasField("tool")]
            assert [(one.tool_name, one.output) for one in called] == [("grep", OUTPUT), ("ls", "no such directory")]
            verdict = await worker.deliver(
                job.lease,
                write("profile", content="# User profile\n\n- Moved to Bergen", ranges=[(1, 1)]),
                write("entities", entity_name="Bergen", content="A town by the sea."),
                write("preferences", topic="Food", content="No nuts.", ranges=[(2, 2)]),
                write("preferences", topic="Talk", content="Plain words.", ranges=[(1, 2)]),
                write("entities", entity_name="Nuts", content="Carol is allergic.", peer="carol"),
                write("preferences", topic="Tea", content="Green.", peer="dora"),
                write("preferences", topic="Cake", content="None.", peer="../carol"),
                write("experiences", experience_name="Search first", content="## Reflect\nGrep.", ranges=[(2, 3)]),
                write("session_skills", skill_name="find-allergies", steps="1. Grep the notes", ranges=[(3, 3)]),
                summary="Carol's allergy",
            )
            assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
        task = await client.wait_task(commit["task_id"], timeout=WAIT_SECONDS)
        result = task["result"]
        assert task["status"] == "completed" and result is not None
        kinds = {"profile": 1, "preferences": 3, "entities": 2, "experiences": 1, "session_skills": 1}
        assert {kind: result["memories_extracted"].get(kind) for kind in kinds} == kinds
        assert [one["reason"] for one in result["skipped"]] == ["peer_not_in_batch", "invalid_peer"]
        assert result["active_count_updated"] == 2
        space = "viking://user/mara"
        made = [
            f"{space}/memories/entities/Bergen.md",
            f"{space}/memories/experiences/Search first.md",
            f"{space}/memories/preferences/Talk.md",
            f"{space}/memories/profile.md",
            f"{space}/peers/carol/memories/entities/Nuts.md",
            f"{space}/peers/carol/memories/preferences/Food.md",
            f"{space}/peers/carol/memories/preferences/Talk.md",
            f"{space}/skills/find-allergies.md",
        ]
        diff = json.loads(await client.read(f"{archive}/memory_diff.json"))
        assert diff["archive_uri"] == archive
        added = diff["operations"]["adds"]
        assert diff["summary"] == {"total_adds": len(added), "total_updates": 0, "total_deletes": 0}
        # Statistics of tools and skills follow from the records, whatever a worker sends.
        assert sorted(one["uri"] for one in added if one["memory_type"] not in ("tools", "skills")) == made
        assert await client.read(f"{archive}/.abstract.md") == "Carol's allergy"
        assert await client.read("viking://session/audit/.overview.md") == "# Carol's allergy"
        assert await client.read(f"{archive}/.done") == ""
        assert len((await client.read(f"{archive}/messages.jsonl")).splitlines()) == 3

        # A commit's own policy: the seed's list leaves session skills and all other types out.
        await session.add_message("user", [TextPart("The tea fair was on 2026-03-20.")])
        narrow = await session.commit({"memory_types": ["events", "trajectories"], "session_skills": ON})
        async with Worker(channel) as worker:
            job = await worker.take()
            assert (list(job.plan.long_term_types), job.plan.session_skills) == (["events"], False)
            skill_again = write("session_skills", skill_name="go-to-fairs", steps="1. Go", ranges=[(4, 4)])
            await worker.deliver(job.lease, skill_again, summary="A fair")
        result = (await client.wait_task(narrow["task_id"], timeout=WAIT_SECONDS))["result"]
        assert result is not None and result["memories_extracted"] == {}
        (skipped,) = result["skipped"]
        assert skipped["reason"] == "type_filtered" and "names `session_skills`" in skipped["message"]
        diff = json.loads(await client.read(f"{narrow['archive_uri']}/memory_diff.json"))
        assert diff["summary"] == {"total_adds": 0, "total_updates": 0, "total_deletes": 0}

        # A patch changes the line that it names; with self off nothing about the user is written.
        for own, changed in ({"self": OFF, "peer": ON}, False), ({}, True):
            await session.add_message("user", [TextPart("I live in Oslo now.")], peer_id="carol" if not changed else "")
            moved = await session.commit(own)
            async with Worker(channel) as worker:
                lease = (await worker.take()).lease
                change = edit(
                    f"{space}/memories/profile.md", content=[("Moved to Bergen", "Moved to Bergen, then to Oslo")]
                )
                verdict = await worker.deliver(lease, change, summary="Oslo")
                assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
            result = (await client.wait_task(moved["task_id"], timeout=WAIT_SECONDS))["result"]
            assert result is not None and result["total_updates"] == int(changed)
            assert [one["reason"] for one in result["skipped"]] == ([] if changed else ["self_disabled"])
            assert ("Oslo" in await client.read(f"{space}/memories/profile.md")) is changed


def noted(*operations: dict[str, Any], edits: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """A model's answer with these writes and edits."""
    return {
        "reasoning": "It was said.",
        "write_operations": list(operations),
        "edit_operations": list(edits),
        "delete_operations": [],
        "summary": SUMMARY,
    }


def written(memory_type: str, *ranges: tuple[int, int], peer_id: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "memory_type": memory_type,
        "fields": [{"name": name, "value": value} for name, value in fields.items()],
        "peer_id": peer_id,
        "ranges": [{"start": start, "end": end} for start, end in ranges],
        "reason": "said so",
        "abstract": "",
        "overview": "",
    }


def worked(client: Client) -> Session:
    """A session in which an agent works: its user speaks, a peer speaks, tools are called."""
    session = client.session("work")
    session.add_message("user", [TextPart("I drink green tea. Find Carol a cake without nuts.")])
    session.add_message("user", [TextPart("I am allergic to nuts.")], peer_id="carol")
    session.add_message(
        "assistant",
        [
            ToolPart("t1", "grep", input={"q": "cake"}, output="lemon cake", status="completed", duration_ms=40),
            ToolPart("t2", "ls", input={"path": "/cakes"}, output="permission denied", status="error", duration_ms=5),
            TextPart("The lemon cake has no nuts."),
        ],
    )
    return session


def test_a_scripted_model(fleet: Processes) -> None:
    """The model reads before it answers, writes for self, a peer and execution, and later edits what it is shown."""
    profile = "viking://user/mara/memories/profile.md"

    def second(request: Request) -> dict[str, Any]:
        block = {"search": "green tea", "replace": "black tea", "start_line": 0}
        patches = [{"field": "content", "blocks": [block], "value": None}]
        change = {"uri": profile, "patches": patches, "ranges": [{"start": 4, "end": 4}], "reason": "said so"}
        return noted(edits=(change,))

    first = noted(
        written("profile", (1, 1), content="# User profile\n\n- Drinks green tea"),
        written("preferences", (2, 2), topic="Food", content="Allergic to nuts."),
        written("experiences", (1, 3), experience_name="Cakes", content="## Reflect\nAsk about nuts."),
        written("session_skills", (1, 3), skill_name="pick-a-cake", steps="1. Grep the cakes"),
    )
    with MessagesApi() as api, Client(fleet.server().address, user="mara") as client:
        api.script(tool_use(("ls", {"uri": "viking://user/memories"})), answer(first), answer(second))
        with_model(fleet, api, "worker")
        session = worked(client)
        session.update(memory_policy={"peer": ON, "session_skills": ON})
        commit = session.commit()
        task = client.wait_task(commit["task_id"], timeout=WAIT_SECONDS)
        assert task["status"] == "completed" and task["result"] is not None, fleet.log()
        assert task["result"]["extractor"]["engine"] == "anthropic"
        kinds = ("profile", "preferences", "experiences", "session_skills")
        extracted = task["result"]["memories_extracted"]
        assert {kind: extracted.get(kind) for kind in kinds} == dict.fromkeys(kinds, 1)
        assert "nuts" in client.read("viking://user/mara/peers/carol/memories/preferences/Food.md")
        assert "1. Grep the cakes" in client.read("viking://user/skills/pick-a-cake.md")
        overview = client.read(f"{commit['archive_uri']}/.overview.md")
        assert all(part in overview for part in (*SECTIONS, *MORE_SECTIONS))
        asked = api.calls[0]
        assert "[ToolCall]" in asked.last_text and '["carol"]' in asked.last_text
        assert {tool["name"] for tool in asked.body["tools"]} == {"read", "find", "ls", "tree"}

        session.add_message("user", [TextPart("I drink black tea now.")])
        task = client.wait_task(session.commit()["task_id"], timeout=WAIT_SECONDS)
        assert task["status"] == "completed", fleet.log()
        assert "Drinks green tea" in api.calls[-1].last_text, "the model sees what it may have to change"
        assert client.read(profile) == "# User profile\n\n- Drinks black tea"
        assert client.read(profile, as_of=1) == "# User profile\n\n- Drinks green tea"


def test_the_engine_without_a_model(fleet: Processes) -> None:
    """It counts calls as their records say, writes what was said and names itself; a policy binds it as any other."""
    with Client(fleet.server().address, user="mara") as client:
        fleet.extractor("worker", "--engine", "offline")
        session = worked(client)
        session.update(memory_policy={"peer": ON})
        session.used(skill={"uri": "viking://user/skills/code-search", "output": "3 files", "success": True})
        commit = session.commit()
        task = client.wait_task(commit["task_id"], timeout=WAIT_SECONDS)
        assert task["status"] == "completed" and task["result"] is not None, fleet.log()
        assert task["result"]["extractor"]["engine"] == "offline"
        skill = client.get_memory("viking://user/memories/skills/code-search.md")["fields"]
        assert (skill["total_executions"], skill["success_count"], skill["fail_count"]) == (1, 1, 0)
        tools = {entry["name"] for entry in client.ls("viking://user/memories/tools")["entries"]}
        assert tools == {"grep.md", "ls.md"}
        for name, counts in {"grep": (1, 1, 0), "ls": (1, 0, 1)}.items():
            fields = client.get_memory(f"viking://user/memories/tools/{name}.md")["fields"]
            assert tuple(fields[key] for key in ("total_calls", "success_count", "fail_count")) == counts
        assert "100.0% (1 successful, 0 failed)" in client.read("viking://user/memories/tools/grep.md")
        overview = client.read(f"{commit['archive_uri']}/.overview.md")
        assert all(part in overview for part in (*SECTIONS, *MORE_SECTIONS))
        assert json.loads(client.read(f"{commit['archive_uri']}/memory_diff.json"))["summary"]["total_adds"] >= 2

        session.add_message("user", [TextPart("My sister lives in Ghent.")])
        session.add_message("assistant", [ToolPart("t3", "grep", output="", status="completed")])
        narrow = session.commit({"memory_types": {"names": ["profile", "entities", "preferences"]}})
        result = client.wait_task(narrow["task_id"], timeout=WAIT_SECONDS)["result"]
        assert result is not None and "tools" not in result["memories_extracted"]
        assert client.get_memory("viking://user/memories/tools/grep.md")["fields"]["total_calls"] == 1
