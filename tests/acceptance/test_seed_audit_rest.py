"""The audit of the seeds, continued: counters, routing, refusals, images, types, buckets, turns, execution memories and
directories, by a raw worker, a scripted model and the engine without a model."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep import AsyncClient, Client, ImagePart, NotFoundError, Session, TextPart, ToolPart
from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.acceptance.processes import Processes
from tests.acceptance.test_anthropic_end_to_end import WAIT_SECONDS, with_model
from tests.acceptance.test_seed_audit import ON, noted, worked, written
from tests.doubles.messages_api import MessagesApi, Request, answer
from tests.support.worker import Worker, delete, edit, write

SPACE = "viking://user/mara"
COUNTERS = ("total_calls", "success_count", "fail_count")
CLAIMED = {"total_calls": 50, "success_count": 70, "fail_count": 3}
EMPTY_DIFF = {"total_adds": 0, "total_updates": 0, "total_deletes": 0}
TOOLS_FILE = """\
name: tools
description: What is known of a tool.
directory: "viking://agent/{agent_space}/memories/tools"
filename_template: "{tool_name}.md"
content_template: |
  Tool: {tool_name}
  "{static_desc}"
  {success_rate}% of {total_calls} calls, {avg_time}, {avg_tokens} tokens
fields:
  - {name: tool_name, type: string, description: Its name., merge_op: immutable}
  - {name: static_desc, type: string, description: What it is.}
  - {name: total_calls, type: int64, description: Calls., merge_op: sum}
  - {name: success_count, type: int64, description: Good calls., merge_op: sum}
  - {name: fail_count, type: int64, description: Bad calls., merge_op: sum}
  - {name: total_time_ms, type: int64, description: Time., merge_op: sum}
  - {name: total_tokens, type: int64, description: Tokens., merge_op: sum}
"""
EVENTS_FILE = """\
name: events
description: What happened.
directory: "viking://user/{user_space}/memories/events"
filename_template: "{event_time}_{event_name}.md"
fields:
  - {name: event_name, type: string, description: Its name., merge_op: immutable}
  - {name: event_time, type: string, description: Its day; may be empty., merge_op: immutable}
  - {name: abstract, type: string, description: A sentence.}
  - {name: content, type: string, description: What happened., merge_op: patch}
"""
"""Type files of the form that the document has: derived placeholders without a declaration, fields without `merge_op`,
a field called `abstract`."""


async def done(client: AsyncClient, worker: Worker, commit: Any, items: Sequence[Any], summary: str) -> dict[str, Any]:
    """Does the job of a commit, with the same output once more if a repair is asked for. The task's result."""
    lease = (await worker.take()).lease
    output = [item if isinstance(item, pb.OutputItem) else pb.OutputItem(operation=item) for item in items]
    output.append(pb.OutputItem(summary=common_pb2.Summary(abstract=summary, overview=f"# {summary}")))
    verdict = await worker.deliver_items(lease, *output)
    if verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR:
        verdict = await worker.deliver_items(lease, *output)
    assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, verdict
    task = await client.wait_task(commit["task_id"], timeout=WAIT_SECONDS)
    assert (task["status"], task["attempt"]) == ("completed", 1)
    archive = commit["archive_uri"]
    assert await client.read(f"{archive}/.abstract.md") == summary and await client.read(f"{archive}/.done") == ""
    return dict(task["result"] or {})


async def summed_up(client: AsyncClient, commit: Any) -> dict[str, int]:
    """The counts of a commit's diff."""
    return dict(json.loads(await client.read(f"{commit['archive_uri']}/memory_diff.json"))["summary"])


async def test_a_raw_worker_makes_no_facts_and_loses_no_commit(fleet: Processes) -> None:
    """Counters are those of the records, what is said about a peer is the peer's, and a bad operation costs itself."""
    fleet.server()
    async with (
        AsyncClient(fleet.address, user="mara") as client,
        grpc.aio.insecure_channel(fleet.address) as channel,
        Worker(channel) as worker,
    ):
        session = await client.create_session("audit", memory_policy={"peer": ON})
        await session.add_message("user", [TextPart("Carol is allergic to nuts.")])
        await session.add_message("user", [TextPart("So I am.")], peer_id="carol")
        calls = [
            ToolPart("t1", "grep", input={"q": "nuts"}, output="cake", status="completed", duration_ms=120),
            ToolPart("t2", "ls", input={"path": "/"}, output="denied", status="error"),
            ToolPart("t3", "fetch", input={"url": "x"}, status="running"),
        ]
        await session.add_message("assistant", calls)
        first = await session.commit()
        operations = [
            write("tools", tool_name="grep", best_for="Finding cakes.", ranges=[(3, 3)], **CLAIMED),
            write("tools", tool_name="rm", best_for="Never.", ranges=[(3, 3)], **CLAIMED),
            write("entities", entity_name="Carol", content="Is allergic to nuts.", peer="carol", ranges=[(1, 1)]),
            write("experiences", experience_name="Search first", content="## Approach\nGrep.", ranges=[(3, 3)]),
        ]
        result = await done(client, worker, first, operations, "Nuts")
        assert [one["uri"].rpartition("/")[2] for one in (*result["skipped"], *result["rejected"])] == ["rm.md"]
        for name, counts in {"grep": (1, 1, 0), "ls": (1, 0, 1), "fetch": (0, 0, 0)}.items():
            fields = (await client.get_memory(f"{SPACE}/memories/tools/{name}.md"))["fields"]
            assert tuple(fields[key] for key in COUNTERS) == counts, name
            assert fields["pending_calls"] == int(name == "fetch")
        assert "Finding cakes." in await client.read(f"{SPACE}/memories/tools/grep.md")
        assert "Avg time: unknown" in await client.read(f"{SPACE}/memories/tools/ls.md")
        with pytest.raises(NotFoundError):
            await client.get_memory(f"{SPACE}/memories/tools/rm.md")
        assert await client.read(f"{SPACE}/peers/carol/memories/entities/Carol.md") == "Is allergic to nuts."
        with pytest.raises(NotFoundError):
            await client.read(f"{SPACE}/memories/profile.md")

        # A patch that does not fit is all that there is: the summary and the diff are kept.
        await session.add_message("user", [TextPart("And to almonds.")], peer_id="carol")
        second = await session.commit()
        unfit = edit(f"{SPACE}/peers/carol/memories/entities/Carol.md", content=[("walnuts", "almonds")])
        result = await done(client, worker, second, [unfit], "Almonds")
        assert [one["reason"] for one in result["rejected"]] == ["patch_not_applicable"]
        assert result["outcome"] == "nothing_applied" and await summed_up(client, second) == EMPTY_DIFF

        # What was only skipped is not called applied.
        await session.add_message("user", [TextPart("Dora likes tea.")])
        third = await session.commit()
        result = await done(client, worker, third, [write("preferences", topic="Tea", content="x", peer="dora")], "Tea")
        assert [one["reason"] for one in result["skipped"]] == ["peer_not_in_batch"]
        assert result["outcome"] == "nothing_applied"

        # A lesson that supersedes another one replaces it, with the reason in the diff.
        await session.add_message("assistant", [ToolPart("t4", "grep", output="", status="completed")])
        fourth = await session.commit()
        better = write(
            "experiences",
            experience_name="Ask first",
            content="## Approach\nAsk, then grep.",
            supersedes="Search first",
            ranges=[(6, 6)],
        )
        await done(client, worker, fourth, [better], "Lessons")
        diff = json.loads(await client.read(f"{fourth['archive_uri']}/memory_diff.json"))
        (gone,) = diff["operations"]["deletes"]
        assert gone["uri"].endswith("/memories/experiences/Search first.md") and "Ask first" in gone["reason"]
        assert (await client.get_memory(f"{SPACE}/memories/tools/grep.md"))["fields"]["total_calls"] == 2

        # A delete without evidence, beside a sound write.
        await session.add_message("user", [TextPart("I live in Ghent.")])
        fifth = await session.commit()
        baseless = delete(f"{SPACE}/memories/tools/ls.md", ranges=())
        sound = write("profile", content="# User profile\n\n- Lives in Ghent", ranges=[(7, 7)])
        result = await done(client, worker, fifth, [baseless, sound], "Ghent")
        assert result["outcome"] == "partly_rejected" and await summed_up(client, fifth) == {
            **EMPTY_DIFF,
            "total_adds": 1,
        }


def test_a_scripted_model_is_held_to_the_records(fleet: Processes) -> None:
    """It gets no counters wrong, loses no commit by a bad patch, and is asked for lessons only about work."""

    def unfit(request: Request) -> dict[str, Any]:
        patches = [
            {"field": "content", "blocks": [{"search": "coffee", "replace": "tea", "start_line": 0}], "value": None}
        ]
        change = {"uri": f"{SPACE}/memories/tools/grep.md", "patches": patches, "ranges": [], "reason": "said so"}
        return noted(edits=(change,))

    claims = noted(
        written("tools", (1, 3), tool_name="grep", best_for="Cakes.", **CLAIMED),
        written("tools", (1, 3), tool_name="rm", best_for="Never.", **CLAIMED),
        written("entities", (1, 1), peer_id="carol", entity_name="Carol", content="Is allergic to nuts."),
    )
    with MessagesApi() as api, Client(fleet.server().address, user="mara") as client:
        api.script(answer(claims))
        api.otherwise = answer(unfit)
        with_model(fleet, api, "worker")
        session = worked(client)
        session.update(memory_policy={"peer": ON})
        task = client.wait_task(session.commit()["task_id"], timeout=WAIT_SECONDS)
        assert task["status"] == "completed", fleet.log()
        tools = {entry["name"] for entry in client.ls("viking://user/memories/tools")["entries"]}
        assert tools == {"grep.md", "ls.md"}
        for name, counts in {"grep": (1, 1, 0), "ls": (1, 0, 1)}.items():
            fields = client.get_memory(f"{SPACE}/memories/tools/{name}.md")["fields"]
            assert tuple(fields[key] for key in COUNTERS) == counts
        assert client.read(f"{SPACE}/peers/carol/memories/entities/Carol.md") == "Is allergic to nuts."
        assert "experiences" in api.calls[0].last_text
        listing = next(tool for tool in api.calls[0].body["tools"] if tool["name"] == "ls")
        assert "show_all_hidden" in listing["input_schema"]["properties"]

        session.add_message("user", [TextPart("Thank you, that was nice of you.")])
        commit = session.commit()
        task = client.wait_task(commit["task_id"], timeout=WAIT_SECONDS)
        assert (task["status"], task["attempt"]) == ("completed", 1), fleet.log()
        assert "experiences" not in api.calls[1].last_text
        overview, abstract = (
            client.read(f"{commit['archive_uri']}/{name}") for name in (".overview.md", ".abstract.md")
        )
        assert "# Session Summary" in overview and abstract
        assert client.read(f"{commit['archive_uri']}/.done") == ""
        diff = json.loads(client.read(f"{commit['archive_uri']}/memory_diff.json"))
        assert diff["summary"] == EMPTY_DIFF


def talked(session: Session, turn_id: str, asked: str, answered: str = "") -> None:
    session.add_message("user", [TextPart(asked)], turn_id=turn_id)
    if answered:
        session.add_message("assistant", [TextPart(answered)], turn_id=turn_id)


def test_the_loop_of_turn_memory_runs_without_code_of_the_caller(fleet: Processes) -> None:
    """The engine without a model makes fingerprints, a selection, the gate's feedback and buckets."""
    with Client(fleet.server().address, user="mara") as client:
        fleet.extractor("worker", "--engine", "offline")
        session = client.session("trip")

        def reconciled(turn_id: str) -> dict[str, Any]:
            submitted = session.submit_turn(turn_id, extract=True, extract_selection=True, extract_feedback=True)
            task = client.wait_task(submitted["task_id"], timeout=WAIT_SECONDS)
            assert task["status"] == "completed", fleet.log()
            return dict(task["turn_result"] or {})

        talked(session, "t1", "Find me a hotel in Lisbon under 120 euros.", "Hotel Lumen in Lisbon costs 110 euros.")
        session.submit_turn("t1", fingerprint={"objective": "A hotel in Lisbon"})
        header = "[TURN MEMORIES — CHRONOLOGICAL ("
        assert f"{header}scope=conversation)]" in session.turn_context("t1", "final_answer")["text"]
        talked(session, "t2", "Which office takes my tax papers?", "The one in the Rua Augusta.")
        session.submit_turn("t2", fingerprint={"objective": "Tax papers"})
        talked(session, "t3", "No, that is wrong: the tax papers go to another office. The hotel in Lisbon is fine.")
        result = reconciled("t3")
        assert result["fingerprints"] == 1
        feedback = session.list_feedback()["feedback"]
        assert feedback and {one["origin"] for one in feedback} == {"machine"}
        context = session.turn_context("t3", "final_answer")
        assert context["selection"] is not None
        assert f"{header}selected; scope=conversation)]" in context["text"]

        # Of the two lists each selects its own.
        offered = session.turn_context("t3", "reconciler", last_turns=20)
        session.select_turns(offered, local_memories_turn_ids=["t1"], turn_ids=["t2"])
        downstream = session.turn_context("t3", "downstream", last_turns=1)
        assert [one["turn_id"] for one in downstream["turn_memories"]] == ["t3", "t1"]

        task_id = session.reconcile_buckets()
        client.wait_task(task_id, timeout=WAIT_SECONDS)
        for bucket in session.buckets()["buckets"]:
            document = json.loads(client.read(bucket["hosted_uri"]))
            assert (document["bucket_id"], document["name"]) == (bucket["bucket_id"], bucket["name"])
            assert len(document["timeline"]) == len(bucket["timeline"])


async def test_type_files_of_the_documents_form_are_served(fleet: Processes, tmp_path: Path) -> None:
    types = tmp_path / "types"
    types.mkdir()
    (types / "tools.yaml").write_text(TOOLS_FILE)
    (types / "events.yaml").write_text(EVENTS_FILE)
    fleet.server(RUNEKEEP_TYPES_DIRS=str(types))
    async with (
        AsyncClient(fleet.address, user="mara") as client,
        grpc.aio.insecure_channel(fleet.address) as channel,
        Worker(channel) as worker,
    ):
        session = client.session("types")
        call = ToolPart("t1", "grep", output="x", status="completed", duration_ms=1200, total_tokens=1500)
        await session.add_message("assistant", [call, ToolPart("t2", "grep", output="y", status="error")])
        commit = await session.commit()
        operations = [
            write("tools", tool_name="grep", static_desc="Finds text."),
            write("events", event_name="Fair", abstract="A fair.", content="There was a fair."),
        ]
        await done(client, worker, commit, operations, "A fair")
        assert "50.0% of 2 calls, 1.2s, 1500 tokens" in await client.read(f"{SPACE}/memories/tools/grep.md")
        fair = await client.get_memory(f"{SPACE}/memories/events/Fair.md")
        assert (fair["abstract"], fair["content"]) == ("A fair.", "There was a fair.")


async def test_an_archive_keeps_what_was_shown_and_called(fleet: Processes) -> None:
    """Images are found by what they show, calls are documents, directories say something, no message is left behind."""
    fleet.server()
    async with (
        AsyncClient(fleet.address, user="mara") as client,
        grpc.aio.insecure_channel(fleet.address) as channel,
        Worker(channel) as worker,
    ):
        session = client.session("photos")
        image = ImagePart("https://pictures.example/1.png")
        added = await session.add_message("user", [TextPart("Look at this."), image])
        call = ToolPart("t1", "grep", input={"q": "nuts"}, output="cake", status="completed", duration_ms=120)
        await session.add_message("assistant", [call])
        commit = await session.commit()
        shown = pb.ImageDescription(message_sequence=1, part_index=1, text="A zeppelin over a lake.")
        tea = write("preferences", topic="Tea", content="Drinks green tea at breakfast.", ranges=[(1, 1)])
        result = await done(client, worker, commit, [tea, pb.OutputItem(image_description=shown)], "A picture")

        async def shows_it() -> bool:
            found = (await client.find("zeppelin", min_revision=result["revision"]))["results"]
            return any(one["kind"] == "passage" and "zeppelin" in one["text"] for one in found)

        async with asyncio.timeout(WAIT_SECONDS):
            while not await shows_it():  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.05)
        first, _ = [message async for message in session.messages("all")]
        assert first.id == added["id"] and "zeppelin" in first.parts[1].caption

        document = json.loads(await client.read(f"{SPACE}/sessions/photos/tools/t1/tool.json"))
        assert (document["tool_name"], document["input"], document["status"]) == ("grep", {"q": "nuts"}, "completed")
        assert document["duration_ms"] == 120 and document["output"] == "cake"
        assert "green tea" in await client.read(f"{SPACE}/memories/.overview.md")
        assert "tea" in (await client.read(f"{SPACE}/memories/preferences/.abstract.md")).lower()

        idle = await client.create_session("idle", auto_commit={"idle": 1, "keep_recent_count": 2})
        for text in ("One.", "Two.", "Three."):
            await idle.add_message("user", [TextPart(text)])
        async with asyncio.timeout(WAIT_SECONDS):
            while (await idle.info())["compression_index"] == 0:  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.05)
        assert (await idle.info())["live_message_count"] == 0
