"""A user's data as one archive, to be taken along, and such an archive made a user's data again."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, cast

import grpc

from runekeep.client.connection import Connection, new_request_id
from runekeep.client.erasure_results import SpaceContents
from runekeep.client.plain import plain
from runekeep.v1 import space_service_pb2 as wire

_PIECE = 256 * 1024
_LOOKS, _LOOK_SECONDS = 200, 0.05
Progress = Callable[[int], object]
"""Is told how many bytes have been written or sent so far; by a blocking client in a thread of its own."""


class Imported(TypedDict):
    """What an import made. `revision_offset`: what was added to the revisions of the export."""

    revision: int
    revision_offset: int
    contents: SpaceContents


class UserExports:
    """A user's data as a file; every AsyncClient is this too."""

    _connection: Connection

    async def export_space(self, target: str | os.PathLike[str] | BinaryIO, *, progress: Progress | None = None) -> int:
        """Writes everything of the user to a file, a gzipped tar archive; its bytes.

        If `target` is a path, the file appears there once the export is complete. It has the mode 0600 and replaces an
        existing file. If `target` is an open file, the data is written to it as it arrives.
        Raises AbortedError when data of the user is deleted meanwhile, UnavailableError while the server is away:
        export again then.
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
    ) -> Imported:
        """Makes an export the data of the user, who must have nothing: all of it or nothing.

        It is sent once; after an error that does not say whether it was done, send the same file with the same
        `request_id`. Raises FailedPreconditionError (`SPACE_NOT_EMPTY`) for a user who has something,
        InvalidArgumentError (`EXPORT_INVALID`) for what is no export, UnavailableError.
        """
        if not isinstance(source, str | os.PathLike):
            return await self._import(source, request_id, progress)
        with await asyncio.to_thread(_open, Path(source)) as file:
            return await self._import(file, request_id, progress)

    async def _import(self, file: BinaryIO, request_id: str | None, progress: Progress | None) -> Imported:
        connection = self._connection
        requests = _requests(file, request_id or new_request_id(), progress)
        call = connection.stubs.spaces.ImportSpace(requests, metadata=connection.stream_metadata)
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            raise connection.failure(await _told(call, error)) from error
        finally:
            # Ends what still reads the file.
            call.cancel()
        return cast(Imported, plain(answer))


async def _requests(
    file: BinaryIO, request_id: str, progress: Progress | None
) -> AsyncGenerator[wire.ImportSpaceRequest, None]:
    yield wire.ImportSpaceRequest(options=wire.ImportOptions(request_id=request_id))
    sent = 0
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield wire.ImportSpaceRequest(data=piece)
        sent += len(piece)
        if progress is not None:
            progress(sent)


async def _told(call: Any, error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """What the server said. To a caller who is still sending, gRPC may first tell only that it cannot be sent, as an
    error of its own without a trailer; the server's status takes its place a moment later."""
    for _ in range(_LOOKS):
        code, trailer = await call.code(), await call.trailing_metadata()
        if code is not grpc.StatusCode.INTERNAL or trailer:
            return grpc.aio.AioRpcError(code, await call.initial_metadata(), trailer, await call.details())
        await asyncio.sleep(_LOOK_SECONDS)
    return error


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
