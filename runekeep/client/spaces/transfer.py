"""Exports a user's data as one archive, and imports such an archive."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, BinaryIO

import grpc

from runekeep.client.blocking import blocking
from runekeep.client.connection.call_status import is_from_server, record_statuses
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.spaces.results import SpaceContents
from runekeep.client.wire.proto_json import to_json
from runekeep.client.wire.result import Result
from runekeep.v1 import space_service_pb2 as wire

_CHUNK_BYTES = 256 * 1024
Progress = Callable[[int], object]
"""Gets the number of bytes written or sent so far. A blocking client calls it in another thread."""


class ImportResult(Result):
    """The result of an import. `revision_offset` was added to the revisions of the export."""

    revision: int
    revision_offset: int
    contents: SpaceContents


class UserTransfers:
    """Export and import of a user's data; every AsyncClient is this too."""

    _connection: Connection

    async def export_space(self, target: str | os.PathLike[str] | BinaryIO, *, progress: Progress | None = None) -> int:
        """Writes all data of the user to a file, a gzipped tar archive. Returns its size in bytes.

        If `target` is a path, the file appears there once the export is complete. It has the mode 0600 and replaces an
        existing file. If `target` is an open file, the data is written to it as it arrives.
        Raises AbortedError if data of the user is deleted meanwhile, and UnavailableError if the server is away: then
        export again.

        ```python
        size = client.export_space("robin.tar.gz")
        ```
        """
        if not isinstance(target, str | os.PathLike):
            return await self._export(target, progress)
        path = Path(target)
        part = path.with_name(path.name + ".part")
        file = await asyncio.to_thread(_create, part)
        try:
            with file:
                written = await self._export(file, progress)
                await asyncio.to_thread(_sync, file)
            await asyncio.to_thread(os.replace, part, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            raise
        return written

    async def _export(self, file: BinaryIO, progress: Progress | None) -> int:
        connection, written = self._connection, 0
        stream = connection.stubs.spaces.ExportSpace(wire.ExportSpaceRequest(), metadata=connection.stream_metadata)
        try:
            async for piece in stream:
                await asyncio.to_thread(file.write, piece.data)
                written += len(piece.data)
                if progress is not None:
                    progress(written)
        except grpc.aio.AioRpcError as error:
            raise connection.failure(error) from error
        finally:
            stream.cancel()
        return written

    async def import_space(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        request_id: str | None = None,
        progress: Progress | None = None,
    ) -> ImportResult:
        """Imports an export, as a whole or not at all. The user must have no data.

        The client sends it once. If an error leaves the result unknown, send the same file with the same `request_id`.
        Raises FailedPreconditionError (`SPACE_NOT_EMPTY`) if the user has data, InvalidArgumentError
        (`EXPORT_INVALID`) if the file is not an export, UnavailableError, and what reading the file raises.

        ```python
        print(client.import_space("robin.tar.gz").contents.memories)
        ```
        """
        if not isinstance(source, str | os.PathLike):
            return await self._import(source, request_id, progress)
        with await asyncio.to_thread(_open, Path(source)) as file:
            return await self._import(file, request_id, progress)

    async def _import(self, file: BinaryIO, request_id: str | None, progress: Progress | None) -> ImportResult:
        connection = self._connection
        call = connection.stubs.spaces.ImportSpace(metadata=connection.stream_metadata)
        statuses = record_statuses(call)
        try:
            await _send(call, _requests(file, request_id or new_request_id(), progress))
            answer = await call
        except grpc.aio.AioRpcError as error:
            raise connection.failure(next(filter(is_from_server, statuses), error)) from error
        finally:
            call.cancel()
        return ImportResult(to_json(answer))


class BlockingUserTransfers:
    """Blocking versions of the methods of UserTransfers; a base of Client."""

    export_space = blocking(UserTransfers.export_space)
    import_space = blocking(UserTransfers.import_space)


async def _requests(
    file: BinaryIO, request_id: str, progress: Progress | None
) -> AsyncGenerator[wire.ImportSpaceRequest, None]:
    yield wire.ImportSpaceRequest(options=wire.ImportOptions(request_id=request_id))
    sent = 0
    while piece := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield wire.ImportSpaceRequest(data=piece)
        sent += len(piece)
        if progress is not None:
            progress(sent)


async def _send(call: Any, requests: AsyncGenerator[wire.ImportSpaceRequest, None]) -> None:
    """Sends all requests, or as many as the server takes. Raises what reading the file raises."""
    async with contextlib.aclosing(requests):
        async for request in requests:
            try:
                await call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # The server has answered already; the caller reads its answer from the call.
                return
        await call.done_writing()


def _create(path: Path) -> BinaryIO:
    """Opens a file for writing and gives it the mode 0600, even if an earlier export left the file behind."""
    file = open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115 (the caller closes it)
    path.chmod(0o600)
    return file


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
