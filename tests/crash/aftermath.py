"""Looks at a space once its load has stopped: waits until all is applied and indexed, then reads everything."""

import asyncio
import time
from typing import Any

from runekeep.v1 import memory_service_pb2 as memory_pb
from runekeep.v1 import session_service_pb2 as session_pb
from runekeep.v1 import task_service_pb2 as task_pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from schemas.turns.buckets import Bucket
from schemas.turns.stored import BUCKET, FINGERPRINT
from server.wire.turns import bucket_to_wire
from storage.database import Space
from tests.crash import eyes as store
from tests.crash.clients import Client
from tests.crash.eyes import Eyes
from tests.crash.history import LEDGERS, Aftermath, Diff, Ended, History, Print, Theme, ids_of

DRAIN_SECONDS = 90.0
PASSAGES_LOOKED_FOR = 3


async def drained(eyes: Eyes, spaces: list[Space]) -> None:
    """Returns once no job is open and the index has everything, or when that takes too long: the checker tells."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        rows = await eyes.rows(
            "SELECT (SELECT COUNT(*) FROM jobs WHERE state IN ('pending', 'leased')),"
            " (SELECT COUNT(*) FROM outbox WHERE op = 'upsert'),"
            " (SELECT COUNT(*) FROM spaces WHERE indexed_revision < revision),"
            " (SELECT COUNT(*) FROM archives WHERE passages_indexed = 0)"
        )
        if rows and not any(rows[0]):
            return
        await asyncio.sleep(0.1)


async def look(client: Client, eyes: Eyes) -> Aftermath:
    """Everything that is there, by the API where it says it. Adds faults of passages to the history."""
    tasks = [task async for task in _pages(client, "tasks", "ListTasks", task_pb.ListTasksRequest(), "tasks")]
    found = await client.send("memories", "FindMemories", memory_pb.FindMemoriesRequest(query="ledger"))
    commits = [task for task in tasks if task.kind == task_pb.TASK_KIND_COMMIT]
    diffs = {}
    for task in commits:
        request = session_pb.GetMemoryDiffRequest(archive_uri=task.archive_uri)
        if task.state == task_pb.TASK_STATE_COMPLETED:
            diffs[task.task_id] = _diff((await client.send("sessions", "GetMemoryDiff", request)).diff)
    await _passages(client)
    watermark = (await store.watermarks(eyes)).get(client.space, 0)
    return Aftermath(
        ledgers={name: await _ledger(client, name) for name in LEDGERS if found.latest_revision},
        marks=await _marks(client) if found.latest_revision else (),
        versions={name: await _versions(client, name) for name in LEDGERS if found.latest_revision},
        tasks={task.task_id: _ended(task) for task in commits},
        diffs=diffs,
        messages={session: await _messages(client, session) for session in _sessions(client)},
        lane=await store.lane(eyes, client.space),
        revision=found.latest_revision,
        indexed_revision=watermark,
        open_jobs=await store.open_jobs(eyes, client.space),
        unsent=await store.unsent(eyes, client.space),
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


async def _messages(client: Client, session: str) -> tuple[str, ...]:
    request = session_pb.ListMessagesRequest(session=session, scope=session_pb.MESSAGE_SCOPE_ALL, page_size=50)
    pages = _pages(client, "sessions", "ListMessages", request, "messages")
    return tuple([message.id async for message in pages])


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
        found = sorted(name for name in names if name.startswith(f"{commit.id}-"))
        wanted = [id for (space, _), ids in history.added.items() if space == client.space for id in ids]
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
    user = client.space.user
    cards = {row.hosted_uri: bucket_to_wire(user, session, Bucket.from_text(row.text), row.hosted_uri) for row in rows}
    listed = turn_pb.ListMemoryBucketsRequest(session=session, show_disabled=True)
    themes = []
    for bucket in (await client.send("turns", "ListMemoryBuckets", listed)).buckets:
        facts = tuple(
            (one.signal.key, one.weight, frozenset(one.support_turn_ids))
            for part in bucket.timeline
            for one in part.facts
        )
        themes.append(Theme(facts, len(cards) == len(rows) and _is_card(cards.get(bucket.hosted_uri), bucket)))
    return tuple(themes)


def _is_card(card: turn_pb.MemoryBucket | None, bucket: turn_pb.MemoryBucket) -> bool:
    """Whether it is the card of that bucket as it is now: all but the timeline, and of that some of the last slice."""
    if card is None:
        return False
    whole = turn_pb.MemoryBucket()
    whole.CopyFrom(bucket)
    last = whole.timeline[-1] if whole.timeline else turn_pb.TimelineSlice()
    shown = list(card.timeline[0].facts) if card.timeline else []
    for one in (card, whole):
        one.ClearField("timeline")
    return card == whole and bool(shown) and all(fact in last.facts for fact in shown)


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
