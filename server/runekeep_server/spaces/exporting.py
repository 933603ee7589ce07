"""Exports a space as one archive, which is streamed to the caller.

The store is read in slices of about a megabyte, which are compressed in a thread. A slow reader stops the reading. An
entry is written to a file first, because a tar archive states the length of an entry before its content.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from tempfile import SpooledTemporaryFile
from typing import IO, Final

import structlog

from runekeep_schemas.documents.uris import ABSTRACT_FILE, OVERVIEW_FILE
from runekeep_schemas.memory_types.digest import type_digests
from runekeep_server.memories.tree.documents import File, file_text
from runekeep_server.wire.sessions import diff_document
from runekeep_storage.blobs.blobs import digest_of
from runekeep_storage.database import Space
from runekeep_storage.errors import NotFound, SpaceChanged, SpaceShut
from runekeep_storage.records import Archive
from runekeep_storage.store import Store
from runekeep_storage.transfer import exporting
from runekeep_storage.transfer.exporting import Line, Moment, Spool, blobs_of, line_of, next_limit
from runekeep_storage.transfer.exports.archive import Writer
from runekeep_storage.transfer.exports.layout import (
    FIRST,
    LIVE,
    MANIFEST,
    REST,
    VERSION,
    Closing,
    Manifest,
    bucket_entry,
    data_entry,
    memory_entry,
    messages_entry,
    output_entry,
)
from runekeep_storage.transfer.exports.rows import encode

CHUNK: Final = 128 * 1024
"""Bytes of one write to the caller. The last piece of an entry may exceed it."""
_PIECE: Final = 256 * 1024
_IN_MEMORY: Final = 1024 * 1024
"""Bytes of an entry, or of one read, that stay in memory. The rest is in an unnamed temporary file."""

log = structlog.get_logger(__name__)

Send = Callable[[bytes], Awaitable[object]]


async def export(store: Store, space: Space, send: Send) -> None:
    """Exports the whole space to `send`, which may be slow. Raises SpaceChanged if data was deleted meanwhile."""
    try:
        with _file() as file:
            spool = Spool(file)
            moment = await store.database.read(exporting.begin, space, spool)
            await _Export(store, space, moment, spool, send).run()
    except SpaceShut as error:
        if error.user != space.user:
            # Of the user that this one is copied to.
            raise
        raise SpaceChanged(space.user) from error


@contextmanager
def _file() -> Iterator[IO[bytes]]:
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        yield file


class _Export:
    def __init__(self, store: Store, space: Space, moment: Moment, spool: Spool, send: Send) -> None:
        self._store = store
        self._space = space
        self._moment = moment
        self._spool = spool
        self._send = send
        self._writer = Writer()

    async def run(self) -> None:
        await self._entry(MANIFEST, self._manifest().encode())
        for table in FIRST:
            await self._table(table)
        await self._sessions()
        for table in REST:
            await self._table(table)
        await self._views()
        await self._store.database.read(exporting.check, self._space, self._moment)
        digest = self._writer.digest
        self._writer.finish(Closing(entries=digest.entries, sha256=digest.hexadecimal()).encode())
        await self._send(self._writer.take())

    def _manifest(self) -> Manifest:
        try:
            release = installed("runekeep")
        except PackageNotFoundError:
            release = ""
        return Manifest(
            version=VERSION,
            runekeep=release,
            user=self._space.user,
            revision=self._moment.revision,
            export_time=datetime.now(UTC).isoformat(timespec="microseconds"),
            counts=self._moment.counts,
            memory_types=type_digests(self._store.registry),
        )

    # Entries

    async def _entry(self, name: str, content: bytes, time: int = 0) -> None:
        await asyncio.to_thread(self._write, name, content, time)
        await self._flush()

    def _write(self, name: str, content: bytes, time: int) -> None:
        self._writer.begin(name, len(content), time)
        for start in range(0, len(content), _PIECE):
            self._writer.data(content[start : start + _PIECE])

    async def _flush(self) -> None:
        if self._writer.ready >= CHUNK:
            await self._send(self._writer.take())

    async def _lines(self, name: str, table: str, slices: AsyncIterator[list[Line]], time: int = 0) -> None:
        """Writes an entry of rows that are read in slices."""
        with _file() as file:
            async for some in slices:
                await asyncio.to_thread(_write_lines, file, table, some)
            size = file.tell()
            file.seek(0)
            self._writer.begin(name, size, time)
            while piece := await asyncio.to_thread(file.read, _PIECE):
                await asyncio.to_thread(self._writer.data, piece)
                await self._flush()

    # Tables

    async def _table(self, table: str) -> None:
        match table:
            case "memories":
                slices = self._memories(current=False)
            case "commits":
                slices = self._commits()
            case "archives":
                slices = self._archives()
            case "jobs":
                slices = _numbered(self._slices(table))
            case _:
                slices = self._slices(table)
        await self._lines(data_entry(table), table, slices)

    async def _memories(self, *, current: bool) -> AsyncIterator[list[Line]]:
        after, limit = ("", 0), exporting.FIRST_SLICE
        while some := await self._store.database.read(
            exporting.memories, self._space, self._moment, after, limit, current=current
        ):
            yield some
            after = (some[-1]["uri"], some[-1]["version"])
            limit = next_limit(limit, some)

    async def _commits(self) -> AsyncIterator[list[Line]]:
        after = 0
        while some := await self._store.database.read(
            exporting.commits, self._space, self._moment, after, exporting.SLICE
        ):
            yield some
            after = some[-1]["revision"]

    async def _archives(self) -> AsyncIterator[list[Line]]:
        place, limit = None, exporting.FIRST_SLICE
        while True:
            some, place = await asyncio.to_thread(self._spool.some, "archives", place, limit)
            if not some:
                return
            while some:
                whole = await self._store.database.read(exporting.finished, self._space, self._moment, some)
                yield whole
                limit = next_limit(limit, whole)
                some = some[len(whole) :]

    async def _slices(self, table: str) -> AsyncIterator[list[Line]]:
        """Yields the rows of the export's snapshot. Several of these iterators may run concurrently."""
        place = None
        while True:
            some, place = await asyncio.to_thread(self._spool.some, table, place, exporting.SLICE)
            if not some:
                return
            yield some

    async def _rows(self, table: str) -> AsyncIterator[Line]:
        async for some in self._slices(table):
            for row in some:
                yield row

    async def _bucket_rows(self) -> AsyncIterator[Line]:
        async for row in self._rows("turn_artifacts"):
            if blobs_of("turn_artifacts", row):
                yield row

    # Conversations

    async def _sessions(self) -> None:
        """Writes each session's buckets, then its archives and live messages. Outputs precede the messages that name
        them."""
        archives = _Following(self._rows("archives"))
        buckets = _Following(self._bucket_rows())
        outputs = _Following(self._rows("tool_outputs"))
        async for session in self._rows("sessions"):
            name = session["session_id"]
            given: set[str] = set()
            async for bucket in buckets.of(name):
                await self._blob(name, bucket["blob"], given, bucket_entry)
            async for archive in archives.of(name):
                await self._archive(name, archive, given)
            first = session["archived_sequence"] + 1
            time = session["updated_at"] // 1_000_000
            await self._messages(name, LIVE, first, session["last_sequence"], given, time)
            async for output in outputs.of(name):
                await self._blob(name, output["blob"], given, output_entry)
                await self._tool(name, output)

    async def _archive(self, session: str, row: Line, given: set[str]) -> None:
        index, time = row["archive_index"], row["created_at"] // 1_000_000
        await self._messages(session, index, row["first_sequence"], row["last_sequence"], given, time)
        if row["state"] != "done":
            return
        (whole,) = await self._store.database.read(exporting.finished, self._space, self._moment, [row])
        archive = Archive(**{"index": whole.pop("archive_index"), **whole})
        folder = messages_entry(session, index).removesuffix("messages.jsonl")
        diff = json.dumps(diff_document(self._space.user, archive), ensure_ascii=False, indent=2)
        for name, text in ((ABSTRACT_FILE, archive.abstract), (OVERVIEW_FILE, archive.overview), (_DIFF, diff)):
            await self._entry(folder + name, text.encode(), time)

    async def _messages(self, session: str, index: int, first: int, last: int, given: set[str], time: int) -> None:
        async def slices() -> AsyncIterator[list[Line]]:
            at, limit = first, exporting.FIRST_SLICE
            while at <= last:
                some = await self._store.database.read(
                    exporting.messages, self._space, self._moment, session, at, last, limit
                )
                if not some:
                    raise SpaceChanged(self._space.user)
                for row in some:
                    for blob in blobs_of("messages", row):
                        await self._blob(session, blob, given, output_entry)
                yield some
                at = some[-1]["sequence"] + 1
                limit = next_limit(limit, some)

        await self._lines(messages_entry(session, index), "messages", slices(), time)

    async def _blob(self, session: str, blob: str, given: set[str], entry: Callable[[str, str], str]) -> None:
        """Writes each blob once in a session. A lost blob, for example after a restore, is left out. Raises
        SpaceChanged for a blob that was replaced meanwhile, as buckets are."""
        digest = digest_of(blob)
        if digest in given:
            return
        given.add(digest)
        try:
            content = await asyncio.to_thread(self._store.blobs.get, self._space, blob)
        except NotFound:
            read = self._store.database.read
            await read(exporting.check, self._space, self._moment)
            kept = entry is output_entry or await read(exporting.names_bucket, self._space, session, blob)
            if not kept:
                raise SpaceChanged(self._space.user) from None
            log.error("export_without_blob", account=self._space.account, user=self._space.user, blob=blob)
            return
        await self._entry(entry(session, digest), content)

    async def _tool(self, session: str, row: Line) -> None:
        """Writes a file that tells people where the output of a call is."""
        digest = digest_of(row["blob"])
        place = output_entry("..", digest).removeprefix("sessions/../")
        about = {"tool_id": row["tool_id"], "length": row["length"], "output": f"../../{place}"}
        content = json.dumps(about, ensure_ascii=False, indent=2).encode()
        await self._entry(f"sessions/{session}/tools/{row['tool_id']}/tool.json", content)

    # Readable copies

    async def _views(self) -> None:
        """Writes the files of the current memories, at the paths of their URIs."""
        async for some in self._memories(current=True):
            for row in some:
                file = File(row["memory_type"], row["fields"], row["content"])
                text = await asyncio.to_thread(file_text, file, self._store.registry)
                name = memory_entry(row["uri"], self._space.user)
                await self._entry(name, text.encode(), row["updated_at"] // 1_000_000)


_DIFF: Final = "memory_diff.json"


class _Following:
    """Rows that are sorted by session. Take them session by session in that order."""

    def __init__(self, rows: AsyncIterator[Line]) -> None:
        self._rows = rows
        self._next: Line | None = None
        self._begun = False

    async def of(self, session: str) -> AsyncIterator[Line]:
        if not self._begun:
            self._begun = True
            await self._go_on()
        while self._next is not None and self._next["session_id"] < session:
            await self._go_on()
        while self._next is not None and self._next["session_id"] == session:
            yield self._next
            await self._go_on()

    async def _go_on(self) -> None:
        self._next = await anext(self._rows, None)


async def _numbered(jobs: AsyncIterator[list[Line]]) -> AsyncIterator[list[Line]]:
    """Renumbers the jobs of each lane from 1, because any number of finished jobs may precede them."""
    lane, number = "", 0
    async for some in jobs:
        rows = []
        for row in some:
            lane, number = row["lane"], number + 1 if row["lane"] == lane else 1
            rows.append({**row, "lane_sequence": number})
        yield rows


def _write_lines(file: IO[bytes], table: str, rows: Iterable[Line]) -> None:
    for row in rows:
        file.write(encode(line_of(table, row)))
