"""What the suites of erasures share: a store with all its parts, users whose every row holds a word, and where that
word is found."""

import json
import zlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.turns.buckets import Bucket
from runekeep_schemas.turns.feedback import MACHINE, Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint
from runekeep_schemas.turns.selection import Selection
from runekeep_schemas.turns.summary import Summary
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure import transactions
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.receipts import Erasure, Scope, get
from runekeep_storage.erasure.worker import Eraser, Waits
from runekeep_storage.jobs.extraction_records import AttemptRecord, pack
from runekeep_storage.memories import apply
from runekeep_storage.memories.apply import PreparedCommit
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import Proposal, ProposedOperation
from runekeep_storage.records import STORED_OUTPUT, Job, MemoryWrite, Message, MessageRun, Usage
from runekeep_storage.sessions import sessions
from runekeep_storage.sessions.image_descriptions import Described
from runekeep_storage.turns import buckets, feedback, fingerprints, selections, turns
from tests.support.appending import add_messages
from tests.support.bytes_on_disk import written_to
from tests.support.storage.databases import PLAN, claim, commit, prepared, uri
from tests.support.storage.deletions import dump
from tests.support.storage.search import Search, write

WORD = "quokka"
"""What is said once, and is to be nowhere."""


@dataclass
class Store:
    """What a server puts together, as far as erasures need it. Nothing of it runs by itself but the relay."""

    search: Search
    blobs: FolderBlobs
    cleaner: Cleaner
    eraser: Eraser
    folder: Path

    @property
    def database(self) -> Database:
        return self.search.database

    async def erase(self, space: Space, scope: Scope, erasure_id: str = "e1") -> Erasure:
        """As a call does; the erasure as it is when that answers."""
        await self.database.write(transactions.begin, space, erasure_id, scope)
        await self.eraser.take(space, erasure_id)
        return await self.database.read(get, space, erasure_id)

    async def finish(self, space: Space, erasure_id: str = "e1", steps: int = 500) -> Erasure:
        """Brings it as far as it goes, or until `steps` were done."""
        for _ in range(steps):
            await self.cleaner.clean()
            if not await self.eraser.step():
                break
            await self.search.relay.moved()
        return await self.database.read(get, space, erasure_id)


@pytest.fixture
async def store(search: Search, tmp_path: Path) -> AsyncIterator[Store]:
    blobs = FolderBlobs(tmp_path / "blobs")
    cleaner = Cleaner(search.database, blobs)
    eraser = Eraser(
        search.database,
        search.attachment,
        blobs,
        search.relay,
        cleaner,
        poll_seconds=0.02,
        waits=Waits(0.0, 0.0, 0.0, 0.0),
    )
    search.relay.start()
    yield Store(search, blobs, cleaner, eraser, tmp_path)


def words(message_id: str, *said: str, **columns: Any) -> Message:
    parts = tuple({"type": "text", "text": one} for one in said)
    return Message(message_id, columns.pop("role", "user"), parts, **columns)


async def say(database: Database, space: Space, session_id: str, *messages: Message) -> None:
    async def work(tx: Tx) -> None:
        await sessions.get_or_create(tx, space, session_id)
        outputs = {
            part["tool_id"]: (part[STORED_OUTPUT], 10)
            for message in messages
            for part in message.parts
            if STORED_OUTPUT in part
        }
        await add_messages(tx, space, session_id, list(messages), outputs)

    await database.write_global(work)


def sources(session_id: str, *message_ids: str) -> str:
    """Of messages whose ids say their sequences: `m1` and so on."""
    return json.dumps([{"session": session_id, "message_id": one, "sequence": int(one[1:])} for one in message_ids])


def version(
    space: Space, name: str, base: int, number: int, content: str, named: str = "[]", **more: Any
) -> MemoryWrite:
    made = write(space, name, base, number, content, **more)
    runs = [MessageRun(one["session"], one["message_id"], *[one["sequence"]] * 2) for one in json.loads(named)]
    return replace(made, sources=named, origins=tuple(runs))


def entry(write: MemoryWrite) -> dict[str, Any]:
    return {"uri": write.uri, "memory_type": "preferences", "version": write.version, "after": write.content}


async def extract(
    database: Database, space: Space, session_id: str, task_id: str, *writes: MemoryWrite, quoting: str, view: str = ""
) -> None:
    """A whole commit of the session, which says `quoting` wherever it may quote memories, `view` where messages."""
    await commit(database, space, session_id, task_id)
    job = await claim(database)
    assert job.job_id == task_id
    await database.write(apply.apply, space, quoted(job, writes, quoting, view))


async def propose(
    database: Database, space: Space, session_id: str, task_id: str, content: str, peer: str = ""
) -> None:
    """Adds an operation to the commit of a task that waits for review."""
    name = uri(space, content).replace("/memories/", f"/peers/{peer}/memories/" if peer else "/memories/")
    operation = {"write": {"memory_type": "preferences", "fields": {"content": {"string_value": content}}}}
    held = ProposedOperation(1, "write", "preferences", operation=operation, targets={name: "write"})
    await database.write(proposals.create, space, Proposal(session_id, task_id, 1, PLAN, "{}", (held,), revision=0))


def quoted(job: Job, writes: Iterable[MemoryWrite], quoting: str, view: str = "") -> PreparedCommit:
    writes = list(writes)
    plain = prepared(job.lease, writes, f"out-{job.job_id}")
    refused = {"reason": "field_invalid", "memory_type": "", "uri": "", "message": quoting, "operation_index": 0}
    parts = {
        "abstract": f"abstract {view}",
        "overview": f"overview {view}",
        "diff": json.dumps({"extractor": {}, "operations": {"adds": [entry(write) for write in writes]}}),
        "result": {"outcome": "applied", "rejected": [refused]},
        "made": AttemptRecord("{}", pack([{"answer": quoting}]), {}),
        "described": (Described("https://images.test/1", f"shows {view}"),) if view else (),
    }
    return PreparedCommit(**{**{field: getattr(plain, field) for field in plain.__slots__}, **parts})


async def remember_turn(store: Store, space: Space, session_id: str, turn_id: str, word: str) -> None:
    """All that can be known of a turn, with the word in it, folded into a bucket with a blob."""
    whole = Bucket(f"obj-{word}-1", word, updated_at=1)
    blob = store.blobs.put(space, whole.to_text().encode())

    async def work(tx: Tx) -> None:
        turn = await turns.get(tx, space, session_id, turn_id)
        await turns.set_summary(tx, space, session_id, turn_id, Summary(notes=word).to_text())
        said = Fingerprint(turn_id, f"objective {word}", conversation_title=f"title {word}")
        await fingerprints.submit(tx, space, turn, said)
        reaction = Reaction(f"r-{turn_id}", turn_id, "ok", f"good {word}", MACHINE, 1.0, turn_id, 0)
        await feedback.put(tx, space, session_id, turn, reaction)
        await buckets.write(tx, space, session_id, whole, blob, f"blob:{blob}", base="")
        await selections.put(tx, space, session_id, Selection(turn_ids=(turn_id,)))
        await fingerprints.cover(tx, space, session_id, 99)

    await store.database.write_global(work)


async def use(database: Database, space: Space, session_id: str, name: str) -> None:
    await database.write(sessions.record_usage, space, session_id, [Usage("context", uri(space, name))])


async def tables_with(database: Database, space: Space, word: str) -> set[str]:
    """Tables of a user with a row that holds the word, packed answers of models among them."""
    found = await dump(database, space)
    for row in found.get("extraction_records", []):
        row["calls"] = zlib.decompress(row["calls"])
    return {table for table, rows in found.items() if word in repr(rows)}


def files_with(folder: Path, word: str) -> list[str]:
    """Files that hold the word, in UTF-8 or in UTF-16."""
    wanted = (word.encode(), word.encode("utf-16-le"))
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and _holds(path, wanted)
    )


def _holds(path: Path, wanted: Iterable[bytes]) -> bool:
    data = written_to(path)
    return any(one in data for one in wanted)
