"""Imports an export into a space: checks it while it arrives, writes it into a locked space, and unlocks the space when
it is complete. The export comes from a caller, or is made here to copy a user.

If anything fails, including a caller who disconnects or an invalid archive, the written data is removed before the
caller gets the error. If this server dies, another one, or the next one, removes it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid4

import structlog

from runekeep.v1 import space_service_pb2 as pb
from runekeep_server.protocol.errors import copied_space_changed, export_invalid, internal, invalid, too_large
from runekeep_server.protocol.validation import validate_message
from runekeep_server.settings import LimitSettings
from runekeep_server.spaces.exporting import export
from runekeep_server.spaces.import_intake import BlobRead, Intake, Rows
from runekeep_storage import deadline
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.fair_turns import FairSlots
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.errors import ImportLost, SpaceChanged, SpaceNotEmpty, StoreUnavailable
from runekeep_storage.spaces import pending_deletions, space_locks
from runekeep_storage.store import Store
from runekeep_storage.transfer import importing
from runekeep_storage.transfer.exports.archive import ArchiveError, ArchiveTooLarge
from runekeep_storage.transfer.exports.layout import Counts, Manifest
from runekeep_storage.transfer.exports.moving import Moving
from runekeep_storage.transfer.importing import NotCleared, RowsCollide

_METHOD: Final = "ImportSpace"
_DIGEST: Final = sha256(b"").hexdigest()
"""Digest of the body in every request key: the archive of a repeated request id is not compared once the import is
finished."""
_RENEWALS: Final = 3
"""Renewals during the time after which an import counts as dead."""

log = structlog.get_logger(__name__)

Take = Callable[[bytes], Awaitable[None]]


class Imports:
    """Runs imports. `limits` bounds how many run at a time, because a line may have a hundred megabytes, and how long a
    caller may send nothing. `lease_seconds`: an import without a renewal for that long counts as dead. `queued` is
    called when jobs were queued."""

    def __init__(
        self, store: Store, *, most_bytes: int, limits: LimitSettings, lease_seconds: float, queued: Callable[[], None]
    ) -> None:
        self._store = store
        self._most = most_bytes
        self._lease = round(lease_seconds * 1_000_000)
        self._queued = queued
        self._silence = limits.import_idle_seconds
        self._slots = FairSlots(limits.imports, limits.account_imports)

    async def take(self, space: Space, stream: AsyncIterator[pb.ImportSpaceRequest]) -> pb.ImportSpaceResponse:
        """Runs an import. Raises ApiError, SpaceNotEmpty, SpaceShut, StoreUnavailable."""
        key = await self._options(stream)
        try:
            return await self._run(space, key, partial(self._receive, stream))
        except ArchiveError as error:
            raise export_invalid(str(error)) from error
        except RowsCollide as error:
            raise export_invalid(f"two lines of {error} cannot stand beside each other") from error

    async def copy(self, source: Space, target: Space, key: RequestKey | None) -> pb.ImportSpaceResponse:
        """Imports an export of `source` into `target`. Raises as `take` does, and ApiError INTERNAL if this
        server does not accept its own export, a fault that the caller cannot mend."""
        try:
            return await self._run(target, key, partial(export, self._store, source))
        except SpaceChanged as error:
            raise copied_space_changed(error.user) from error
        except (ArchiveError, RowsCollide) as error:
            failure = internal()
            log.error("copy_failed", incident=failure.metadata["incident"], error=str(error), exc_info=error)
            raise failure from error

    async def _run(
        self, space: Space, key: RequestKey | None, feed: Callable[[Take], Awaitable[None]]
    ) -> pb.ImportSpaceResponse:
        """Runs an import. `feed` passes the whole archive, piece by piece, to the function that it gets. Returns the
        first answer if the request was answered before."""
        if (before := await self._answered(space, key)) is not None:
            return before
        async with self._slots.take():
            try:
                answer = await self._import(space, key, feed)
            except SpaceNotEmpty:
                # The request may have been answered while this repeat of it waited for its turn.
                if (before := await self._answered(space, key)) is not None:
                    return before
                raise
        self._store.relay.wake()
        self._queued()
        return answer

    async def _answered(self, space: Space, key: RequestKey | None) -> pb.ImportSpaceResponse | None:
        """Returns the first answer to the request, if there is one."""
        if key is None:
            return None
        before = await self._store.database.read(idempotent_requests.find_response, space, key)
        return None if before is None else pb.ImportSpaceResponse.FromString(before)

    async def _receive(self, stream: AsyncIterator[pb.ImportSpaceRequest], take: Take) -> None:
        while (message := await self._next(stream)) is not None:
            validate_message(message)
            if message.WhichOneof("message") != "data":
                raise invalid("options", "come once, in the first message", "Send the archive after them")
            await take(message.data)

    async def _import(
        self, space: Space, key: RequestKey | None, feed: Callable[[Take], Awaitable[None]]
    ) -> pb.ImportSpaceResponse:
        one = _Import(self._store, space, self._lease, self._most)
        try:
            async with one.alive():
                await feed(one.take)
                return await one.finish(key)
        except ArchiveTooLarge as error:
            await one.undo()
            todo = "Ask its operator for a larger max_import_bytes"
            raise too_large(f"The archive holds more than {self._most} bytes, which this server takes", todo) from error
        except BaseException:
            await one.undo()
            raise

    async def _options(self, stream: AsyncIterator[pb.ImportSpaceRequest]) -> RequestKey | None:
        first = await self._next(stream)
        if first is None:
            raise invalid("options", "are missing", "Send them in the first message")
        validate_message(first)
        if first.WhichOneof("message") != "options":
            raise invalid("options", "are missing", "Send them in the first message")
        request_id = first.options.request_id
        return RequestKey(_METHOD, request_id, _DIGEST) if request_id else None

    async def _next(self, stream: AsyncIterator[pb.ImportSpaceRequest]) -> pb.ImportSpaceRequest | None:
        """Returns the next message, or None when the caller has sent everything. Raises ImportLost."""
        try:
            async with asyncio.timeout(self._silence):
                return await anext(aiter(stream), None)
        except TimeoutError as error:
            raise ImportLost(f"nothing of the import came for {self._silence:g} seconds") from error


class _Import:
    """One import. None of its data is visible before `finish`."""

    def __init__(self, store: Store, space: Space, lease: int, most: int) -> None:
        self._store = store
        self._space = space
        self._lease = lease
        self._id = str(uuid4())
        self._intake = Intake(store.registry, most)
        self._offset = 0
        self._begun = False
        self._shut = False
        self._undoing: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """Renews the lease of the import within the block, however slow its caller is."""
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease / _RENEWALS / 1_000_000)
            if self._shut:
                try:
                    await self._store.all_spaces.write(importing.go_on, self._space, self._id, self._lease)
                except ImportLost:
                    # The next write raises it too.
                    return
                except StoreUnavailable as error:
                    log.warning("import_not_renewed", error=str(error))

    async def take(self, data: bytes) -> None:
        """Writes received bytes. Raises ArchiveError, ArchiveTooLarge, RowsCollide, SpaceNotEmpty, SpaceShut,
        ImportLost."""
        self._intake.feed(data)
        while (step := await asyncio.to_thread(self._intake.step)) is not None:
            match step:
                case Manifest():
                    await self._begin(step)
                case Rows():
                    await self._write(step)
                case BlobRead():
                    await self._put(step)

    async def _begin(self, manifest: Manifest) -> None:
        self._begun = True
        while True:
            try:
                begun = await self._store.database.write(
                    importing.begin, self._space, self._id, self._lease, manifest.revision
                )
                break
            except NotCleared:
                while await self._store.database.write(pending_deletions.clear, self._space):
                    pass
        self._shut = True
        self._offset = begun.offset
        self._intake.moving = Moving(
            manifest.user,
            self._space.user,
            begun.offset,
            manifest.revision,
            anew=None if begun.fresh else UUID(self._id),
        )
        log.info("import_begun", account=self._space.account, user=self._space.user, import_id=self._id)

    async def _write(self, rows: Rows) -> None:
        write = self._store.all_spaces.write
        lease = (self._space, self._id, self._lease)
        match rows.table:
            case "jobs":
                await self._rename()
            case "memories":
                await write(importing.write_memories, *lease, rows.rows, rows.beside)
            case "turn_artifacts":
                await write(importing.write_artifacts, *lease, rows.rows, rows.beside)
            case _:
                await write(importing.write, *lease, rows.table, rows.rows)

    async def _rename(self) -> None:
        """Renames jobs whose id exists already: workers identify a job only by its id."""
        moving = self._intake.moving
        assert moving is not None
        ids = [one.job_id for one in self._intake.jobs]
        for taken in await self._store.all_spaces.read_global(importing.taken, ids):
            moving.renamed[taken] = str(uuid4())

    async def _put(self, blob: BlobRead) -> None:
        name = await asyncio.to_thread(self._store.blobs.put, self._space, blob.data)
        self._intake.blobs[blob.digest] = (name, self._store.blobs.uri(self._space, name))

    async def finish(self, key: RequestKey | None) -> pb.ImportSpaceResponse:
        counts, work = await asyncio.to_thread(self._intake.close)

        async def open_it(tx: Tx) -> bytes:
            revision = await importing.finish(tx, self._space, self._id, work)
            return self._answer(counts, revision).SerializeToString()

        answer = await self._store.all_spaces.write(idempotent_requests.run_once, self._space, key, open_it)
        self._begun = False
        return pb.ImportSpaceResponse.FromString(answer)

    def _answer(self, counts: Counts, revision: int) -> pb.ImportSpaceResponse:
        contents = pb.SpaceContents(blobs=len(self._intake.blobs), **counts.model_dump())
        return pb.ImportSpaceResponse(revision=revision, revision_offset=self._offset, contents=contents)

    async def undo(self) -> None:
        """Removes the written data. Runs to completion even if the call ends before."""
        if self._begun:
            self._undoing = asyncio.create_task(self._undo())
            await asyncio.shield(self._undoing)

    async def _undo(self) -> None:
        deadline.ignore_deadline()
        try:
            await self._store.all_spaces.write(space_locks.expire, self._space, self._id)
            await self._store.cleaner.empty(self._space)
        except StoreUnavailable as error:
            # The expiry of the import's lease triggers the removal later.
            log.warning("import_not_undone", account=self._space.account, user=self._space.user, error=str(error))
        self._store.cleaner.wake()
