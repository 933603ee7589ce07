"""Looks at a space once its load has stopped: waits until all is applied and indexed, then reads everything."""

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

from runekeep.v1 import memory_service_pb2 as memory_pb
from runekeep.v1 import session_service_pb2 as session_pb
from runekeep.v1 import task_service_pb2 as task_pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from tests.crash.clients import Client
from tests.crash.history import LEDGERS, Aftermath, Diff, Ended, History, Print, Theme, digest, ids_of
from tests.crash.workload import texts_of

DRAIN_SECONDS = 90.0
OPEN = (task_pb.TASK_STATE_PENDING, task_pb.TASK_STATE_RUNNING)
FINGERPRINT = "artifact:turn.fingerprint.v1"
BUCKET = "conversation.memory.bucket.v1"
PASSAGES_LOOKED_FOR = 3


async def drained(clients: list[Client], seconds: float = DRAIN_SECONDS) -> None:
    """Returns once no task is open and everything can be searched, or after a timeout, which the checker reports."""
    deadline = time.monotonic() + seconds
    for client in clients:
        while time.monotonic() < deadline:
            if not await _open_tasks(client):
                found = await client.send("memories", "FindMemories", memory_pb.FindMemoriesRequest(query="ledger"))
                pending = found.pending_passages + found.pending_memories
                if found.revision == found.latest_revision and not pending:
                    break
            await asyncio.sleep(0.1)


async def _open_tasks(client: Client) -> int:
    answer = await client.send("tasks", "ListTasks", task_pb.ListTasksRequest(states=OPEN, page_size=200))
    return len(answer.tasks)


async def look(client: Client) -> Aftermath:
    """Reads everything that is stored, through the public API only. Adds faults of passages to the history."""
    tasks = [task async for task in _pages(client, "tasks", "ListTasks", task_pb.ListTasksRequest(), "tasks")]
    found = await client.send("memories", "FindMemories", memory_pb.FindMemoriesRequest(query="ledger"))
    commits = [task for task in tasks if task.kind == task_pb.TASK_KIND_COMMIT]
    diffs = {}
    for task in commits:
        request = session_pb.GetMemoryDiffRequest(archive_uri=task.archive_uri)
        if task.state == task_pb.TASK_STATE_COMPLETED:
            diffs[task.task_id] = _diff((await client.send("sessions", "GetMemoryDiff", request)).diff)
    await _passages(client)
    messages = {session: await read_messages(client, session) for session in _sessions(client)}
    return Aftermath(
        ledgers={name: await _ledger(client, name) for name in LEDGERS if found.latest_revision},
        marks=await _marks(client) if found.latest_revision else (),
        versions={name: await _versions(client, name) for name in LEDGERS if found.latest_revision},
        tasks={task.task_id: _ended(task) for task in commits},
        diffs=diffs,
        messages={session: tuple(one.id for one in mine) for session, mine in messages.items()},
        contents={
            one.id: digest(await texts_as_read(client, session, one))
            for session, mine in messages.items()
            for one in mine
        },
        revision=found.latest_revision,
        indexed_revision=found.revision,
        open_tasks=await _open_tasks(client),
        pending=found.pending_passages + found.pending_memories,
        turn_tasks={task.task_id: _state(task) for task in tasks if task not in commits},
        prints={session: await _prints(client, session) for session in _sessions(client)},
        artifacts={session: await _fingerprints(client, session) for session in _sessions(client)},
        themes={session: await _themes(client, session) for session in _sessions(client)},
    )


def _sessions(client: Client) -> list[str]:
    return [session for space, session in client.history.added if space == client.space]


async def _pages(client: Client, service: str, method: str, request: Any, items: str) -> Any:
    """Items of all pages."""
    request.page_size = request.page_size or 200
    while True:
        answer = await client.send(service, method, request)
        for item in getattr(answer, items):
            yield item
        if not answer.next_page_token:
            return
        request.page_token = answer.next_page_token


async def _ledger(client: Client, name: str) -> tuple[str, ...]:
    request = memory_pb.GetMemoryRequest(uri=_uri(name))
    memory = (await client.send("memories", "GetMemory", request)).memory
    return ids_of(memory.fields["content"].string_value)


async def _versions(client: Client, name: str) -> tuple[tuple[int, int], ...]:
    request = memory_pb.ListMemoryVersionsRequest(uri=_uri(name))
    pages = _pages(client, "memories", "ListMemoryVersions", request, "memories")
    return tuple(sorted([(one.version, one.revision) async for one in pages]))


async def _marks(client: Client) -> tuple[str, ...]:
    request = memory_pb.ListDirectoryRequest(uri="viking://user/memories/marks", node_limit=10_000)
    return tuple(
        entry.name.removesuffix(".md") for entry in (await client.send("memories", "ListDirectory", request)).entries
    )


async def read_messages(client: Client, session: str) -> list[Any]:
    """Returns all messages of a session, in order."""
    request = session_pb.ListMessagesRequest(session=session, scope=session_pb.MESSAGE_SCOPE_ALL, page_size=50)
    return [one async for one in _pages(client, "sessions", "ListMessages", request, "messages")]


async def texts_as_read(client: Client, session: str, message: Any) -> list[str]:
    """Returns the texts and tool outputs of a message. An output stored apart is read from its own document."""
    texts = texts_of(message)
    for number, part in enumerate(message.parts):
        if part.tool.stored_output_length:
            request = memory_pb.ReadDocumentRequest(uri=tool_uri(session, part.tool.tool_id), limit=-1)
            answer = await client.send("memories", "ReadDocument", request)
            texts[number] = json.loads(answer.text)["output"]
    return texts


def tool_uri(session: str, tool_id: str) -> str:
    """Returns the output of a call that is stored apart from its message."""
    return f"viking://session/{session}/tools/{tool_id}/tool.json"


async def _passages(client: Client) -> None:
    """Of the newest commits every message is found as a passage, once."""
    history: History = client.history
    mine = [commit for commit in history.commits if commit.space == client.space]
    for commit in mine[-PASSAGES_LOOKED_FOR:]:
        request = memory_pb.FindMemoriesRequest(
            query=f"commit {commit.id}", kinds=[memory_pb.FOUND_KIND_PASSAGE], limit=100
        )
        answer = await client.send("memories", "FindMemories", request)
        names = [item.passage.message_id for item in answer.results]
        wanted = [id for (space, _), ids in history.added.items() if space == client.space for id in ids]
        leaked = sorted(set(names) - set(wanted))
        history.faults += [f"a search for passages of {client.space} found {name}, of another user" for name in leaked]
        found = sorted(name for name in names if name.startswith(f"{commit.id}-"))
        if found != sorted(id for id in wanted if id.startswith(f"{commit.id}-")):
            history.faults.append(f"of the passages of {commit.id} a search finds {found}")


async def _prints(client: Client, session: str) -> dict[str, Print]:
    request = turn_pb.ListTurnsRequest(session=session, fingerprinted_only=True)
    pages = _pages(client, "turns", "ListTurns", request, "turns")
    return {turn.turn_id: _print(turn.fingerprint) async for turn in pages}


def _print(told: turn_pb.TurnFingerprint) -> Print:
    assertions, facts = (
        tuple((one.key, one.value.string_value) for one in signals) for signals in (told.assertions, told.facts)
    )
    return Print(told.objective, assertions, facts)


async def _fingerprints(client: Client, session: str) -> tuple[str, ...]:
    request = turn_pb.ListTurnArtifactsRequest(session=session, tags=[FINGERPRINT])
    return tuple([one.turn_id async for one in _pages(client, "turns", "ListTurnArtifacts", request, "artifacts")])


async def _themes(client: Client, session: str) -> tuple[Theme, ...]:
    """Buckets as their blobs tell them, each beside the card that is its row."""
    request = turn_pb.ListTurnArtifactsRequest(session=session, tags=[BUCKET])
    rows = [one async for one in _pages(client, "turns", "ListTurnArtifacts", request, "artifacts")]
    cards = {row.hosted_uri: json.loads(row.text) for row in rows}
    listed = turn_pb.ListMemoryBucketsRequest(session=session, show_disabled=True)
    themes = []
    for bucket in (await client.send("turns", "ListMemoryBuckets", listed)).buckets:
        facts = tuple(fact for part in bucket.timeline for fact in _facts(part))
        themes.append(Theme(facts, len(cards) == len(rows) and _is_card(cards.get(bucket.hosted_uri), bucket)))
    return tuple(themes)


def _facts(part: turn_pb.TimelineSlice) -> list[tuple[str, float, frozenset[str]]]:
    return [(one.signal.key, one.weight, frozenset(one.support_turn_ids)) for one in part.facts]


def _is_card(card: dict[str, Any] | None, bucket: turn_pb.MemoryBucket) -> bool:
    """Whether this is the current card of that bucket: some facts of its last slice stand for the timeline."""
    if card is None or not card["timeline"] or not bucket.timeline:
        return False
    shown = [(one["key"], one["weight"], frozenset(one["support_turn_ids"])) for one in card["timeline"][0]["facts"]]
    same = (card["bucket_id"], card["name"], card["objective_text"], datetime.fromisoformat(card["updated_at"]))
    changed = bucket.update_time.ToDatetime(UTC)
    return (
        same == (bucket.bucket_id, bucket.name, bucket.objective_text, changed)
        and bool(shown)
        and set(shown) <= set(_facts(bucket.timeline[-1]))
    )


def _uri(ledger: str) -> str:
    return f"viking://user/memories/{ledger}.md"


def _state(task: Any) -> str:
    return task_pb.TaskState.Name(task.state).removeprefix("TASK_STATE_")


def _ended(task: Any) -> Ended:
    result = task.result
    outcome = task_pb.CommitOutcome.Name(result.outcome).removeprefix("COMMIT_OUTCOME_")
    return Ended(_state(task), outcome, result.revision, result.total_adds, result.total_updates)


def _diff(diff: Any) -> Diff:
    changes = (*diff.adds, *diff.updates, *diff.deletes)
    return Diff(diff.revision, {change.uri: (change.before, change.after) for change in changes})
