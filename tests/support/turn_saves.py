"""Tasks about one turn, and a store in which what they find out cannot be saved."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from runekeep.v1 import extractor_service_pb2 as worker_pb
from runekeep.v1 import task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller
from tests.support.server_process import ServerProcess
from tests.support.turn_calls import buckets_of, extract, reconcile, submit, talk, turn_of
from tests.support.turns import fingerprint, signal
from tests.support.worker import Worker, bucket_changes, turn_memory

COMPLETED = task_service_pb2.TASK_STATE_COMPLETED
TRIP = fingerprint(
    "Plan a trip",
    assertions=[signal("budget", 500, "must"), signal("class", "second", "allow")],
    exceptions=[signal("airline", "Foo", "do_not")],
    facts=[signal("city", "Oslo", "high"), signal("month", "May")],
    assistant_signals=[signal("hotel", "Ritz", "recommend")],
)
KEYS = {"assertions": ["budget", "class"], "exceptions": ["airline"], "facts": ["city", "month"]}
"""Keys of the lists of TRIP."""


def keys(of: Any) -> dict[str, list[str]]:
    """Of a fingerprint or a slice of a bucket: which keys each of its lists has."""
    found = {}
    for name in ("assertions", "exceptions", "facts"):
        found[name] = [(one.signal if hasattr(one, "signal") else one).key for one in getattr(of, name)]
    return found


@contextmanager
def failing_saves(server: ServerProcess) -> Iterator[None]:
    """Nothing of turn memory can be written, all else can, deletions too: as if its pages were bad."""
    with closing(sqlite3.connect(server.data_dir / "runekeep.db", timeout=30)) as store:
        for change in ("INSERT", "UPDATE"):
            store.execute(
                f"CREATE TRIGGER bad_{change} BEFORE {change} ON turn_artifacts BEGIN DELETE FROM not_there; END"
            )
        try:
            yield
        finally:
            for change in ("INSERT", "UPDATE"):
                store.execute(f"DROP TRIGGER bad_{change}")


@dataclass(frozen=True, slots=True)
class TurnJob:
    """A session with one turn, and a task about it. `kind`: turn, bucket or commit."""

    kind: str
    caller: Caller
    session: str
    task_id: str

    @classmethod
    async def queued(cls, caller: Caller, kind: str) -> "TurnJob":
        session = await caller.session()
        await talk(caller, session, "t1", "a trip, please")
        if kind == "bucket":
            await submit(caller, session, "t1", fingerprint=TRIP)
            return cls(kind, caller, session, await reconcile(caller, session))
        if kind == "turn":
            return cls(kind, caller, session, await extract(caller, session, "t1"))
        return cls(kind, caller, session, (await caller.commit(session)).task_id)

    @property
    def output(self) -> worker_pb.OutputItem:
        if self.kind == "bucket":
            budget = pb.BucketSignal(signal=TRIP.assertions[0], support_turn_ids=["t1"])
            timeline = [pb.TimelineSlice(assertions=[budget])]
            return bucket_changes(added=[pb.MemoryBucket(name="Trips", timeline=timeline)])
        return turn_memory("t1", TRIP, pb.TurnSummary(done=["looked at trains"]))

    async def is_not_done(self, worker: Worker) -> Any:
        """Nothing was saved and nothing says so; the lease of the attempt that is to do it next."""
        assert (await self.caller.task(self.task_id)).state != COMPLETED
        turn = await turn_of(self.caller, self.session, "t1")
        assert not turn.HasField("summary") and turn.HasField("fingerprint") == (self.kind == "bucket")
        assert not await buckets_of(self.caller, self.session)
        job = await worker.take()
        assert job.task_id == self.task_id
        if self.kind == "bucket":
            given = await worker.input(job.lease)
            assert [one.turn.turn_id for one in given.turns] == ["t1"], "it is not covered"
        return job.lease

    async def is_done(self) -> None:
        assert (await self.caller.task(self.task_id)).state == COMPLETED
        if self.kind == "bucket":
            (bucket,) = await buckets_of(self.caller, self.session)
            assert (bucket.name, keys(bucket.timeline[0])["assertions"]) == ("Trips", ["budget"])
            assert await reconcile(self.caller, self.session) == "", "it is covered"
            return
        turn = await turn_of(self.caller, self.session, "t1")
        assert (turn.fingerprint.objective, list(turn.summary.done)) == ("Plan a trip", ["looked at trains"])
