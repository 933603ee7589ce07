"""Archives of spaces: a space that is full of everything, exported and imported as a server does, without its calls."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from runekeep.v1 import space_service_pb2 as pb
from runekeep_schemas.turns.fingerprint import Signal
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.settings import LimitSettings
from runekeep_server.spaces.exporting import export
from runekeep_server.spaces.importing import Imports
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.memories import apply
from runekeep_storage.records import MemoryWrite, MessageRun, Usage
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces.space_locks import OpenSpaces
from tests.support.appending import add_messages
from tests.support.exports import entries
from tests.support.storage.databases import ANN, Clock, claim, commit, prepared, talk, text, uri, write
from tests.support.storage.turns import react, say, submit

DIFF = json.dumps({"extractor": {"engine": "test"}, "operations": {"adds": [], "updates": [], "deletes": []}})
REGISTRY = Registry.load()


class _Woken:
    def wake(self) -> None:
        pass


class Parts:
    """What exports and imports use of a store."""

    def __init__(self, database: Any, blobs: FolderBlobs) -> None:
        self.all_spaces = database
        self.database = OpenSpaces(database)
        self.blobs = blobs
        self.registry = REGISTRY
        self.cleaner = Cleaner(database, blobs)
        self.relay = _Woken()


async def exported(parts: Any, space: Space = ANN) -> bytes:
    sent: list[bytes] = []

    async def send(data: bytes) -> None:
        sent.append(data)

    await export(parts, space, send)
    return b"".join(sent)


async def imported(parts: Any, archive: bytes, space: Space = ANN) -> pb.ImportSpaceResponse:
    async def requests() -> AsyncIterator[pb.ImportSpaceRequest]:
        yield pb.ImportSpaceRequest(options=pb.ImportOptions())
        for start in range(0, len(archive), 4096):
            yield pb.ImportSpaceRequest(data=archive[start : start + 4096])

    imports = Imports(parts, most_bytes=2**30, limits=LimitSettings(), lease_seconds=60.0, queued=lambda: None)
    return await imports.take(space, requests())


async def apply_next(database: Database, *writes: MemoryWrite) -> None:
    job = await claim(database)
    await database.write(
        apply.apply,
        ANN,
        replace(prepared(job.lease, writes, f"out-{job.job_id}"), diff=DIFF, extractor='{"engine":"test"}'),
    )


def preference(name: str, base: int, version: int, content: str = "", **columns: Any) -> MemoryWrite:
    made = write(ANN, name, base, version, content, **columns)
    fields = {} if made.deleted else {"topic": name, "content": content}
    sources = [{"session": "s", "message_id": "m1", "sequence": 1}]
    return replace(
        made,
        fields=json.dumps(fields),
        sources=json.dumps(sources),
        # Of a memory of very many messages only the newest are among its sources.
        origins={1: (MessageRun("s", "m1", 1, 2),), 2: (MessageRun("s", "m3", 3, 3),)}.get(version, ()),
        tags=("a", "b"),
        happened_at=-5,
    )


async def live(database: Database, blobs: FolderBlobs) -> None:
    """A bit of everything, twenty commits long."""
    name = blobs.put(ANN, b"a long output")
    large = {"type": "tool", "tool_id": "call", "tool_name": "grep", "skill_name": "", "input": {"a": 1.5},
             "output": "a lo", "status": "completed", "duration_ms": 3, "total_tokens": 0,
             "stored_output_length": 13, "stored_output": name}  # fmt: skip
    context = {"type": "context", "uri": "viking://user/memories/preferences/n1.md", "abstract": "About tea"}
    await talk(database, ANN, "s", "one", "two\u2028three")
    await database.write(
        add_messages, ANN, "s", [replace(text("m3", ""), parts=(large, context))], {"call": (name, 13)}
    )
    for number in range(1, 21):
        await say(database, f"t{number} t{number} -", session="s")
        topics = Signal("tea", number, "mention")
        await submit(database, f"t{number}", objective=f"objective {number}", assistant_signals=(topics,))
        await react(database, f"t{number}", f"good {number}")
        await database.write(sessions.record_usage, ANN, "s", [Usage("context", uri(ANN, f"n{number % 4}"))])
        await commit(database, ANN, "s", f"task-{number}")
        base = (number - 1) // 4
        await apply_next(database, preference(f"n{number % 4}", base, base + 1, f"content {number}"))
    await talk(database, ANN, "s", "still live")
    await talk(database, ANN, "other", "hello", "again")
    await commit(database, ANN, "other", "waits", keep_recent=1)


@pytest.fixture(scope="session")
def archive_files(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Mapping[str, bytes]:
    """Contents by name of an export of the space of `live`. Which driver holds the space makes no difference to it."""
    folder = tmp_path_factory.mktemp("archive")
    shutil.copy(migrated_file, folder / "runekeep.db")

    async def made() -> bytes:
        database, blobs = SqliteDatabase(folder / "runekeep.db", clock=Clock()), FolderBlobs(folder / "blobs")
        await database.open()
        try:
            await live(database, blobs)
            return await exported(Parts(database, blobs))
        finally:
            await database.close()

    return MappingProxyType(entries(asyncio.run(made())))
