"""Blobs in an object store: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

An object store has no rename, which a folder uses so that a remover never deletes a blob that was just put again. So
every object has a unique name of its digest and a random part. It is written once, and the removal of an old object
cannot hit a new one. Data that is put again while it is young keeps its name, so that a repeated call leaves nothing
behind.

Ages compare the object store's clock with this server's. Object stores refuse requests of servers whose clock is off by
more than a quarter of an hour, which is little compared with the grace period.
"""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Awaitable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from runekeep_storage import deadline
from runekeep_storage.blobs.blobs import GRACE_SECONDS, digest_of, verified
from runekeep_storage.database import Space
from runekeep_storage.drivers.common import mark_file
from runekeep_storage.errors import BlobsUnavailable, DeadlinePassed, NotFound

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

    Objects = S3Store | GCSStore | AzureStore | MemoryStore | LocalStore

T = TypeVar("T")

CONNECT = timedelta(seconds=2)
REQUEST = timedelta(seconds=10)
"""Time limit of one attempt of a request."""
IN_ALL = timedelta(seconds=15)
"""Time after which no further attempt of a request starts; there are RETRIES attempts after the first one."""
RETRIES = 4
MARK_SECONDS = 60.0
"""Minimum time between two marks: object stores charge for each request."""
PROBE_SECONDS = 3.0
"""Time limit of a probe with all its attempts."""
_FIRST_WAIT, _MAX_WAIT = timedelta(milliseconds=100), timedelta(seconds=2)


class ObjectBlobs:
    """Objects `{account}/{user}/{digest}/{random}` below a URL; the blob's name is `{digest}-{random}`. The age of a
    blob is the time since it was first put."""

    def __init__(self, objects: "Objects", url: str) -> None:
        """`url`: the location of `objects`."""
        self._objects = objects
        self._url = url.rstrip("/")
        self.damaged: set[tuple[Space, str]] = set()

    @classmethod
    def at(
        cls, url: str, *, connect: timedelta = CONNECT, request: timedelta = REQUEST, in_all: timedelta = IN_ALL
    ) -> "ObjectBlobs":
        """Opens the blobs at a URL such as `s3://bucket/prefix`, without a request to the object store.

        Keys, region and endpoint come from the variables of the vendor's tools, such as `AWS_ACCESS_KEY_ID` and
        `AWS_ENDPOINT_URL`. Raises ValueError for a URL that names no object store.
        """
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store, from_url

        place = urlsplit(url)
        if place.password is not None or place.query or place.fragment:
            raise ValueError("the URL of an object store holds no keys; they come from variables")
        # These client options replace all that variables say about the client.
        http = any(os.environ.get(f"{name}_ALLOW_HTTP", "").lower() == "true" for name in ("AWS", "AZURE", "GOOGLE"))
        try:
            objects = from_url(
                url,
                client_options={"connect_timeout": connect, "timeout": request, "allow_http": http},
                retry_config={
                    "max_retries": RETRIES,
                    "retry_timeout": in_all,
                    "backoff": {"init_backoff": _FIRST_WAIT, "max_backoff": _MAX_WAIT, "base": 2},
                },
            )
        except (BaseError, ValueError) as error:
            raise ValueError(f"no object store can be opened there: {_first_line(error)}") from error
        if not isinstance(objects, S3Store | GCSStore | AzureStore):
            raise ValueError("no object store is there; give a URL such as s3://bucket/prefix")
        return cls(objects, url)

    def put(self, space: Space, data: bytes) -> str:
        with _reachable("written"):
            return asyncio.run(_in_time(self._put(space, data)))

    async def _put(self, space: Space, data: bytes) -> str:
        import obstore

        digest = hashlib.sha256(data).hexdigest()
        async for chunk in obstore.list(self._objects, f"{_folder(space)}/{digest}"):
            for one in chunk:
                # Leave half of the grace period for the row that will name the blob.
                if _age(one) < GRACE_SECONDS / 2 and await self._holds(space, _name(one), data):
                    return _name(one)
        name = f"{digest}-{uuid4().hex}"
        await obstore.put_async(self._objects, _path(space, name), data, use_multipart=False)
        return name

    async def _holds(self, space: Space, name: str, data: bytes) -> bool:
        """Whether an object is intact. A damaged or missing one is stored again under another name."""
        try:
            return await self._get(space, name) == data
        except FileNotFoundError:
            return False

    def get(self, space: Space, name: str) -> bytes:
        with _reachable("read"):
            try:
                data = asyncio.run(_in_time(self._get(space, name)))
            except FileNotFoundError:
                raise NotFound("blob", name) from None
        return verified(self.damaged, space, name, data)

    async def _get(self, space: Space, name: str) -> bytes:
        import obstore

        found = await obstore.get_async(self._objects, _path(space, name))
        return bytes(await found.bytes_async())

    def names(self, space: Space) -> tuple[set[str], set[str]]:
        old: set[str] = set()
        young: set[str] = set()
        with _reachable("listed"):
            for one in self._list(_folder(space)):
                (old if _age(one) > GRACE_SECONDS else young).add(_name(one))
        return old, young

    def size(self, space: Space) -> int:
        with _reachable("listed"):
            return sum(one["size"] for one in self._list(_folder(space)))

    def remove(self, space: Space, name: str) -> None:
        import obstore

        path = _path(space, name)
        with _reachable("removed"), contextlib.suppress(FileNotFoundError):
            if _age(obstore.head(self._objects, path)) > GRACE_SECONDS:
                obstore.delete(self._objects, path)

    def uri(self, space: Space, name: str) -> str:
        return f"{self._url}/{_path(space, name)}"

    @property
    def place(self) -> str:
        return self._url

    def read_mark(self) -> str:
        with _reachable("read"):
            return asyncio.run(self._read_mark())

    async def _read_mark(self) -> str:
        import obstore

        try:
            found = await obstore.get_async(self._objects, mark_file.NAME)
        except FileNotFoundError:
            return ""
        return bytes(await found.bytes_async()).decode("utf-8", "replace")

    def write_mark(self, text: str) -> bool:
        import obstore

        with _reachable("written"):
            obstore.put(self._objects, mark_file.NAME, text.encode(), use_multipart=False)
        return True

    @property
    def mark_seconds(self) -> float:
        return MARK_SECONDS

    def probe(self) -> None:
        with _reachable("written"):
            asyncio.run(self._probe())

    async def _probe(self) -> None:
        import obstore

        name = f".probe/{uuid4().hex}"
        # A health check waits for the response, so it must not retry as long as a blob that is needed.
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await obstore.put_async(self._objects, name, b"probe")
                await obstore.delete_async(self._objects, name)
        except TimeoutError:
            raise BlobsUnavailable(f"the object store did not answer within {PROBE_SECONDS:g} s") from None

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        return (
            "If the object store keeps versions or deleted objects of the bucket, remove those of removed blobs there.",
        )

    def _list(self, folder: str) -> Iterator["ObjectMeta"]:
        import obstore

        chunks: Iterable[Iterable[ObjectMeta]] = obstore.list(self._objects, folder)
        for chunk in chunks:
            yield from chunk


async def _in_time(work: Awaitable[T]) -> T:
    """Awaits `work`, at most until the deadline of the current call, because others need its thread. Raises
    DeadlinePassed."""
    seconds = None if deadline.until() is None else deadline.remaining(IN_ALL.total_seconds())
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        if deadline.is_over(deadline.until()):
            raise DeadlinePassed from None
        raise


@contextlib.contextmanager
def _reachable(done: str) -> Iterator[None]:
    """Maps refusals and timeouts of the object store to BlobsUnavailable, because the call may succeed later."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise BlobsUnavailable(f"a blob cannot be {done}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Returns the first line of an error; the rest is a dump of the client's state."""
    return str(error).partition("\n")[0]


def _folder(space: Space) -> str:
    return f"{space.account}/{space.user}"


def _path(space: Space, name: str) -> str:
    digest = digest_of(name)
    return f"{_folder(space)}/{digest}/{name[len(digest) + 1 :]}"


def _name(one: "ObjectMeta") -> str:
    return "-".join(one["path"].split("/")[-2:])


def _age(one: "ObjectMeta") -> float:
    return time.time() - one["last_modified"].timestamp()
