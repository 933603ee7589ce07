"""Damages files of a system: on SQLite in a copy of its data directory, with an object store one of its objects.

A server that is started on the copy may refuse to start, report that it does not serve, or answer DATA_LOSS. It may not
answer with anything other than what was sent, and may not lose it silently.
"""

import asyncio
import copy
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc

from runekeep.v1 import memory_service_pb2 as memory_pb
from runekeep.v1 import session_service_pb2 as session_pb
from tests.crash.aftermath import read_messages, texts_as_read
from tests.crash.clients import Client, Doors
from tests.crash.faults import DidNotHappen
from tests.crash.fleet import TYPES
from tests.crash.history import History, Space, digest
from tests.crash.installation import gone, serves
from tests.crash.processes import BLIND_SERVER, DidNotStart, Program
from tests.crash.system import System
from tests.crash.system_faults import SystemFault, kill
from tests.crash.violations import Violation, Wrong
from tests.crash.workload import append
from tests.support.callers import used_tool
from tests.support.ports import free_port

PAGE_BYTES = 4096
DAMAGED_PAGES = 12
NOTICE_SECONDS = 30
"""How long a server on a damaged database may take to report it, apart from the errors of its reads."""
ACKNOWLEDGED_SECONDS = 60
READ_MESSAGES = 10
"""A copy is damaged when so many messages are acknowledged, or after that time."""
HONEST = frozenset({"DATA_LOSS", "UNAVAILABLE", "FAILED_PRECONDITION", "DEADLINE_EXCEEDED"})
"""Errors that report a problem with the data or with the server."""
MARK_SECONDS = 3.0
"""What was acknowledged at least this long before a crash must not vanish silently."""
LARGE_OUTPUT = "a line of a large output\n" * 2000


@dataclass(slots=True)
class Findings:
    """The answers of a server on damaged files. `signs`: how it reported the problem, and how often."""

    refused_to_start: str = ""
    not_serving: bool = False
    signs: Counter[str] = field(default_factory=Counter)
    right: int = 0
    """Messages that it returned as they were sent."""
    violations: list[Violation] = field(default_factory=list)

    @property
    def noticed(self) -> bool:
        return bool(self.refused_to_start or self.not_serving or self.signs)

    def __str__(self) -> str:
        said = [f"did not start: {self.refused_to_start}"] if self.refused_to_start else []
        said += ["said that it does not serve"] if self.not_serving else []
        said += [f"{count} times {sign}" for sign, count in sorted(self.signs.items())]
        return f"{', '.join(said) or 'said nothing'}; {self.right} messages were read as they were sent"


async def look_at_copy(data_dir: Path, history: History, *, embedder: str = "minilm", blind: str = "") -> Findings:
    """Starts a server on a directory and compares its answers with a history. `blind`: the guard that the server
    lacks."""
    found = Findings()
    port = free_port()
    arguments = ["--address", f"127.0.0.1:{port}", "--data-dir", str(data_dir)]
    settings = {"RUNEKEEP_TYPES_DIRS": str(TYPES), "RUNEKEEP_EMBEDDER": embedder, "CRASH_WITHOUT": blind}
    module = BLIND_SERVER if blind else "runekeep_server"
    server = Program(data_dir.name, module, arguments, settings, data_dir.parent, announces=True)
    try:
        await server.start(attempts=1)
    except DidNotStart:
        said = [str(line.get("error") or line.get("event")) for line in server.logged() if line.get("level") == "error"]
        last = server.log.read_text(errors="replace").strip().splitlines()[-1:]
        found.refused_to_start = (said or last or ["without a word"])[-1]
        return found
    doors = Doors([port])
    try:
        await asyncio.gather(
            *(_read_all(Client(doors, space, history, "copy", patience=3), found) for space in _spaces(history))
        )
        unfound = _spaces(history)
        for _ in range(NOTICE_SECONDS):
            found.not_serving = not await serves(port)
            unfound = [space for space in unfound if not await _is_found(Client(doors, space, history, "copy"), found)]
            if found.noticed or not unfound:
                break
            await asyncio.sleep(1.0)
        for space in unfound if not found.noticed else ():
            found.violations.append(Violation(Wrong.LOST, space, "a search finds nothing of it, and says nothing"))
    finally:
        await doors.close()
        children = server.children()
        server.kill()
        await gone(children)
    return found


def _spaces(history: History) -> list[Space]:
    return sorted({space for space, _ in history.added})


async def _read_all(client: Client, found: Findings) -> None:
    """Compares every message and every output of a space with what was sent."""
    for (space, session), ids in client.history.added.items():
        if space != client.space:
            continue
        try:
            messages = {one.id: one for one in await read_messages(client, session)}
        except grpc.aio.AioRpcError as error:
            _note_error(found, space, f"the messages of {session}", error)
            continue
        for id in ids:
            if id not in messages:
                found.violations.append(Violation(Wrong.LOST, space, f"message {id} is not in session {session}"))
                continue
            try:
                texts = await texts_as_read(client, session, messages[id])
            except grpc.aio.AioRpcError as error:
                _note_error(found, space, f"the output of {id}", error)
                continue
            if digest(texts) == client.history.contents[id]:
                found.right += 1
            else:
                found.violations.append(Violation(Wrong.DAMAGED, space, f"message {id} was served with other content"))


async def _is_found(client: Client, found: Findings) -> bool:
    """Whether a search finds a message of the space. Records how the server reports that it cannot search."""
    sent = {id for (space, _), ids in client.history.added.items() if space == client.space for id in ids}
    request = memory_pb.FindMemoriesRequest(query="commit message", kinds=[memory_pb.FOUND_KIND_PASSAGE], limit=20)
    try:
        answer = await client.once("memories", "FindMemories", request)
    except grpc.aio.AioRpcError as error:
        _note_error(found, client.space, "a search", error)
        return False
    for reason in answer.degraded:
        found.signs[f"degraded by {reason}"] += 1
    return not sent or any(item.passage.message_id in sent for item in answer.results)


def _note_error(found: Findings, space: Space, what: str, error: grpc.aio.AioRpcError) -> None:
    if error.code().name in HONEST:
        found.signs[error.code().name] += 1
    else:
        text = f"{what} was answered {error.code().name}: {error.details()}"
        found.violations.append(Violation(Wrong.FAULT, space, text))


def snapshot(history: History) -> History:
    """Returns what was acknowledged until now and must be in a copy of the files."""
    return History(added=copy.deepcopy(history.added), contents=dict(history.contents))


async def _copy(system: System, chance: random.Random, name: str) -> tuple[Path, History]:
    """Returns a copy of the data directory as SIGKILL of its server leaves it, and what was acknowledged before. Then
    the system goes on."""
    installation = system.only
    # On a slow machine hardly anything is acknowledged yet, and the reads below would meet no damage.
    for _ in range(ACKNOWLEDGED_SECONDS):
        if len(system.history.contents) >= READ_MESSAGES:
            break
        await asyncio.sleep(1.0)
    acknowledged = snapshot(system.history)
    # The marks beside the database are updated once a second.
    await asyncio.sleep(MARK_SECONDS + chance.uniform(0, 3))
    place = system.directory / f"{name}-{uuid4().hex[:8]}"
    server, index = installation.server_pid, installation.index_pid
    # So that nobody writes to the directory while it is copied.
    os.kill(installation.pid, signal.SIGSTOP)
    try:
        await kill(server)
        await gone([index] if index else [])
        await asyncio.to_thread(shutil.copytree, installation.data_dir, place)
    finally:
        os.kill(installation.pid, signal.SIGCONT)
    await installation.whole(other_than=server)
    return place, acknowledged


def _on_copy(name: str, damage: Callable[[Path, random.Random], int], *, must_be_noticed: bool = True) -> Any:
    """Returns a fault that damages a copy and checks it. `damage` returns how many places it changed."""

    async def inject(system: System, chance: random.Random) -> str:
        place, acknowledged = await _copy(system, chance, name)
        changed = await asyncio.to_thread(damage, place, chance)
        if not changed:
            raise DidNotHappen(f"there was nothing of {name} to damage")
        found = await look_at_copy(place, acknowledged)
        system.violations += found.violations
        if must_be_noticed and not found.noticed:
            text = f"nobody noticed that {changed} places of {name} were damaged"
            system.violations.append(Violation(Wrong.DAMAGED, None, text))
        await asyncio.to_thread(shutil.rmtree, place)
        return f"{changed} places were damaged; the server {found}"

    return inject


def flip_blobs(data_dir: Path, chance: random.Random) -> int:
    """Flips one bit of every blob. Returns how many blobs there were."""
    blobs = [path for path in sorted((data_dir / "blobs").rglob("*")) if path.is_file() and len(path.name) >= 64]
    for path in blobs:
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1
        path.write_bytes(data)
    return len(blobs)


def overwrite_pages(data_dir: Path, chance: random.Random) -> int:
    """Overwrites pages of the database, but not the first, with random bytes. Returns how many."""
    database = data_dir / "runekeep.db"
    pages = database.stat().st_size // PAGE_BYTES
    with database.open("r+b") as file:
        numbers = chance.sample(range(1, pages), min(DAMAGED_PAGES, pages - 1))
        for number in numbers:
            file.seek(number * PAGE_BYTES)
            file.write(chance.randbytes(PAGE_BYTES))
    return len(numbers)


def overwrite_index(data_dir: Path, chance: random.Random) -> int:
    """Overwrites a part of every file of the embedded index that is large enough. Returns how many."""
    files = [path for path in sorted((data_dir / "index").rglob("*")) if path.is_file() and path.stat().st_size >= 64]
    for path in files:
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(chance.randrange(size // 2))
            file.write(chance.randbytes(min(size // 4, PAGE_BYTES)))
    return len(files)


def cut_wal(data_dir: Path, chance: random.Random) -> int:
    """Truncates the write-ahead log. Returns how many bytes are gone."""
    log = data_dir / "runekeep.db-wal"
    size = log.stat().st_size if log.exists() else 0
    kept = int(size * chance.uniform(0.0, 0.6))
    if size:
        with log.open("r+b") as file:
            file.truncate(kept)
    return size - kept


async def _damage_object(system: System, chance: random.Random) -> str:
    """Replaces one object of the object store for a while: reading its output is DATA_LOSS, and correct again
    afterwards."""
    assert system.objects is not None
    request = session_pb.CreateSessionRequest(request_id=str(uuid4()))
    session = (await system.probe.send("sessions", "CreateSession", request)).session.session_id
    mark = uuid4().hex
    message = used_tool(f"tool-{mark}", f"{mark} {LARGE_OUTPUT}", id=f"tool-{mark}")
    await append(system.probe, session, [message])
    with system.objects.lock:
        (key,) = (key for key, (data, _) in system.objects.objects.items() if mark.encode() in data)
        good, at = system.objects.objects[key]
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1
        system.objects.objects[key] = (bytes(bad), at)
    listed = await read_messages(system.probe, session)
    of_copy = Client(system.doors, system.probe.space, snapshot(system.history), "object", patience=3)
    try:
        texts = await texts_as_read(of_copy, session, listed[-1])
        system.violations.append(Violation(Wrong.DAMAGED, of_copy.space, f"a damaged object was served: {len(texts)}"))
        seen = "no refusal"
    except grpc.aio.AioRpcError as error:
        seen = error.code().name
        if seen != "DATA_LOSS":
            system.violations.append(Violation(Wrong.FAULT, of_copy.space, f"a damaged object was answered {seen}"))
    with system.objects.lock:
        system.objects.objects[key] = (good, at)
    return f"a bit of an object was flipped, its output was answered {seen}"


DAMAGES = (
    SystemFault("blobs damaged", _on_copy("blobs", flip_blobs), ("sqlite",), short=True),
    SystemFault("database pages damaged", _on_copy("pages", overwrite_pages), ("sqlite",)),
    SystemFault("index files damaged", _on_copy("index", overwrite_index, must_be_noticed=False), ("sqlite",)),
    SystemFault("write-ahead log cut", _on_copy("log", cut_wal, must_be_noticed=False), ("sqlite",)),
    SystemFault("object damaged", _damage_object, ("postgres",)),
)
