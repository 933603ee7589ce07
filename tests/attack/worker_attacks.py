"""Attacks of workers: on leases of others, on the queue, and on the server that checks what they send."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from uuid import uuid4

from runekeep.v1 import extractor_service_pb2 as pb
from tests.attack.arena import Arena
from tests.attack.identities import COMMITTERS, GREEDY, VICTIM
from tests.integration.extraction.test_lease_holders import OWN, SECRET, resumed, tries
from tests.integration.extraction.test_unhelpful_workers import ended, meanwhile, states, work
from tests.support.callers import said
from tests.support.worker import StreamEnded, Worker, write

OPERATIONS = 200
RANGES = 256
MESSAGES = 200
AT_ONCE = 100
"""Messages of one call."""
CHUNK = 50
"""Operations of one message."""


async def many_ranges(arena: Arena) -> None:
    """One output of 200 operations with 256 ranges each."""
    greedy, channel = await arena.caller(GREEDY), await arena.worker("greedy")
    await greedy.cancel_open()
    session = await greedy.session()
    for first in range(0, MESSAGES, AT_ONCE):
        await greedy.add(session, *[said(f"message {first + number}") for number in range(AT_ONCE)])
    await greedy.commit(session)
    ranges = []
    for _ in range(RANGES):
        first = arena.random.randint(1, MESSAGES)
        ranges.append((first, arena.random.randint(first, MESSAGES)))
    operations = [
        write("preferences", topic=f"Topic {number}", content="Likes it.", ranges=ranges)
        for number in range(arena.many(OPERATIONS))
    ]
    async with Worker(channel, "greedy") as worker:
        lease = (await worker.take()).lease
        await worker.heartbeat(lease)
        try:
            verdict = await _deliver(worker, lease, operations)
            arena.count(pb.JobOutcome.Name(verdict.outcome))
        except StreamEnded as end:
            arena.count(end.failure.code.name if end.failure else "OK")
        except TimeoutError:
            arena.count("NO_VERDICT")
    await greedy.cancel_open()


async def _deliver(worker: Worker, lease: pb.Lease, operations: Sequence[pb.MemoryOperation]) -> pb.JobVerdict:
    """Sends one output in chunks of a size that the server takes."""
    items = [pb.OutputItem(operation=operation) for operation in operations]
    chunks = [items[first : first + CHUNK] for first in range(0, len(items), CHUNK)]
    for index, chunk in enumerate(chunks):
        await worker.chunk(lease, "output", index, chunk)
    return await worker.complete(lease, "output", len(chunks))


async def stolen_leases(arena: Arena) -> None:
    """Another worker uses a lease that it knows whole, one that it guesses, and the holder's name. One with the same
    credentials uses leases without their secret."""
    victim, holders, thieves = await arena.caller(VICTIM), await arena.worker("honest"), await arena.worker("thief")
    await victim.cancel_open()
    await victim.committed(said(SECRET))
    async with AsyncExitStack() as stack:
        holder = await stack.enter_async_context(Worker(holders, "holder"))
        thief = await stack.enter_async_context(Worker(thieves, "thief"))
        colleague = await stack.enter_async_context(Worker(holders, "colleague"))
        lease = (await holder.take()).lease
        await holder.heartbeat(lease)
        guesses = [
            pb.Lease(job_id=lease.job_id, fencing_token=lease.fencing_token + more, secret=secret)
            for more in (0, 1, 7)
            for secret in (lease.secret, b"", uuid4().bytes)
        ]
        for guess in guesses:
            arena.count("LEASE_LOST", await tries(thief, guess))
            if guess != lease:
                arena.count("LEASE_LOST", await tries(colleague, guess))
            await holder.heartbeat(lease)
        if await resumed(thieves, lease, "holder") != pb.LEASE_STATUS_LOST:
            arena.breaches.append("another worker resumed a lease")
        arena.count("LEASE_LOST")
        if (await holder.deliver(lease, OWN)).outcome != pb.JOB_OUTCOME_APPLIED:
            arena.breaches.append("the holder lost its lease to another worker")
    names = [entry.name for entry in (await victim.listing("viking://user/memories/preferences")).entries]
    if "Tea.md" not in names or "Hijack.md" in names:
        arena.breaches.append(f"the memories are {names}")


async def worker_that_never_works(arena: Arena) -> None:
    """A worker takes all the jobs that it can get and does none, beside another one that works."""
    idle, diligent = await arena.worker("idle"), await arena.worker("diligent")
    callers = [await arena.caller(user) for user in COMMITTERS]
    for one in callers:
        await one.cancel_open()
    async with Worker(idle, "idle") as deadbeat, Worker(diligent, "diligent") as worker:
        for _ in range(3):
            await deadbeat.ready(1000)
        # One that is already paused gets nothing: the attack is to ask.
        arena.count("ASKED", 3)
        tasks = [(one, (await one.committed()).task_id) for one in callers]
        async with meanwhile(work(worker)):
            found = await ended(tasks)
        arena.count("ASSIGNED", len(deadbeat.seen("assignment")))
    if states(found) != {"TASK_STATE_COMPLETED"}:
        arena.failures.append(f"tasks ended as {sorted(states(found))}")
