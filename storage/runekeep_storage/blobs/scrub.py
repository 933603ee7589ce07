"""Reads all blobs slowly at intervals, to detect damaged or missing ones before a caller needs them."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

import structlog

from runekeep_schemas.turns.stored import BUCKET
from runekeep_storage import telemetry
from runekeep_storage.blobs import statements
from runekeep_storage.blobs.blobs import MAX_KNOWN, Blobs, digest_of
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.errors import (
    BlobDamaged,
    BlobsUnavailable,
    DatabaseDamaged,
    NotFound,
    StoreUnavailable,
)

P = ParamSpec("P")
T = TypeVar("T")

FIRST_SCRUB_SECONDS: Final = 600.0
"""Delay after the start; less if scrubs are more frequent."""
AGAIN_SECONDS: Final = 5.0
"""Pause between two attempts while the blob store or the relational store is unavailable."""
MAX_READ_TRIES: Final = 3
"""Attempts per blob while the blob store itself responds: the file may be on a bad sector, for example."""
PAGE: Final = 200
"""Rows in one read."""
FIRST: Final = Space("", "")
_DIGEST: Final = re.compile("[0-9a-f]{64}")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """The last scrub that finished, at `ended_at`, in seconds since 1970."""

    ended_at: float
    blobs: int
    bytes: int


async def spaces_after(tx: Tx, last: Space) -> list[Space]:
    """Returns the next spaces of all accounts, in order."""
    rows = await tx.fetch(statements.SPACES_AFTER, last.account, last.user, PAGE)
    return [Space(row["account"], row["user_id"]) for row in rows]


Place = tuple[str, ...]
"""Key of a row that names a blob: a session and one of its tool calls, or a session, a kind and a name."""


async def outputs_after(tx: Tx, space: Space, last: Place) -> list[tuple[Place, str]]:
    """Returns the next tool outputs with the names of their blobs: for each call of a session the latest output."""
    rows = await tx.fetch(statements.OUTPUTS_AFTER, space.account, space.user, *(last or ("", "")), PAGE)
    return [((row["session_id"], row["tool_id"]), row["blob"]) for row in rows]


async def buckets_after(tx: Tx, space: Space, last: Place) -> list[tuple[Place, str]]:
    """Returns the next buckets with the names of their blobs."""
    after = last or ("", "", "")
    rows = await tx.fetch(statements.BUCKETS_AFTER, space.account, space.user, *after, BUCKET, PAGE)
    return [((row["session_id"], row["kind"], row["name"]), row["blob"]) for row in rows]


NAMING: Final = (outputs_after, buckets_after)
"""Reads the rows that name blobs."""


async def named(tx: Tx) -> AsyncIterator[tuple[Space, str]]:
    """Yields the space and blob name of each row that the functions in `NAMING` find, over all spaces, in one
    transaction."""
    last_space = FIRST
    while spaces := await spaces_after(tx, last_space):
        for last_space in spaces:
            for naming in NAMING:
                last: Place = ()
                while page := await naming(tx, last_space, last):
                    last = page[-1][0]
                    for _, name in page:
                        yield last_space, name


class BlobScrub:
    """A background task, one per server. Times are in seconds; `interval` 0 means no scrubs."""

    def __init__(self, database: SpaceDatabase, blobs: Blobs, *, interval: float, bytes_per_second: float) -> None:
        self._database = database
        self._blobs = blobs
        self._interval = interval
        self._rate = bytes_per_second
        self._task: asyncio.Task[None] | None = None
        self.last: Scrubbed | None = None
        self.missing: set[tuple[Space, str]] = set()
        """Blobs that a row named and that were missing in the last scrub."""

    def start(self) -> None:
        if self._interval:
            self._task = asyncio.create_task(self._forever(), name="blob-scrub")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _forever(self) -> None:
        await asyncio.sleep(min(FIRST_SCRUB_SECONDS, self._interval))
        while True:
            try:
                await self.scrub()
            except Exception:
                # Every read of a blob finds damage too, not only a scrub.
                log.exception("blobs_not_scrubbed")
            await asyncio.sleep(self._interval)

    async def scrub(self) -> None:
        """Reads all blobs, and checks that every blob that a row names exists."""
        before, found = set(self._blobs.damaged), _Found()
        last = FIRST
        while spaces := await self._patiently(self._database.read_global, spaces_after, last):
            for last in spaces:
                await self._scrub_space(last, found)
        self._blobs.damaged -= before - found.damaged
        self.missing = found.missing
        self.last = Scrubbed(time.time(), found.blobs, found.bytes)
        telemetry.CHECK_ENDED.labels("blobs").set(self.last.ended_at)
        telemetry.DAMAGED_BLOBS.labels("damaged").set(len(self._blobs.damaged))
        telemetry.DAMAGED_BLOBS.labels("missing").set(len(self.missing))
        log.info(
            "blobs_scrubbed",
            blobs=found.blobs,
            bytes=found.bytes,
            damaged=len(found.damaged),
            missing=len(found.missing),
        )

    async def _scrub_space(self, space: Space, found: "_Found") -> None:
        # Read first, so that a blob that is stored meanwhile is looked up by its name below.
        there = set().union(*await self._patiently(asyncio.to_thread, self._blobs.names, space))
        for name in there:
            # Other files are half-written ones that a crash left.
            if _DIGEST.fullmatch(digest_of(name)):
                await self._read(space, name, found)
        for naming in NAMING:
            last: Place = ()
            while page := await self._patiently(self._database.read, naming, space, last):
                lacking = [row for row in page if row[1] not in there and not await self._read(space, row[1], found)]
                if lacking:
                    # Ignore rows that are gone, or that name another blob by now.
                    again = set(await self._patiently(self._database.read, naming, space, last))
                    for _, name in again.intersection(lacking):
                        found.add_missing(space, name)
                last = page[-1][0]

    async def _read(self, space: Space, name: str, found: "_Found") -> bool:
        """Returns False for a blob that does not exist."""
        tries = 0
        while True:
            try:
                size = len(await asyncio.to_thread(self._blobs.get, space, name))
                break
            except NotFound:
                return False
            except BlobDamaged as error:
                found.add_damaged(space, name)
                size = error.size
                break
            except BlobsUnavailable as error:
                tries += 1
                if tries >= MAX_READ_TRIES and await self._answers():
                    self._note_unreadable(space, name, error, found)
                    size = 0
                    break
                log.info("blob_scrub_waits", error=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
        found.blobs += 1
        found.bytes += size
        await asyncio.sleep(size / self._rate)
        return True

    async def _answers(self) -> bool:
        """Returns whether the blob store serves other blobs."""
        try:
            await asyncio.to_thread(self._blobs.probe)
        except BlobsUnavailable:
            return False
        return True

    def _note_unreadable(self, space: Space, name: str, error: BlobsUnavailable, found: "_Found") -> None:
        telemetry.DAMAGED_DATA.labels("blob").inc()
        log.error("blob_damaged", account=space.account, user=space.user, blob=name, error=str(error))
        found.add_damaged(space, name)
        self._blobs.damaged |= found.damaged

    async def _patiently(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Repeats the call while the relational store or the blob store is unavailable."""
        while True:
            try:
                return await work(*args, **kwargs)
            except DatabaseDamaged:
                raise
            except StoreUnavailable as error:
                log.info("blob_scrub_waits", error=str(error))
                await asyncio.sleep(AGAIN_SECONDS)


class _Found:
    """The findings of a scrub so far."""

    def __init__(self) -> None:
        self.blobs = 0
        self.bytes = 0
        self.damaged: set[tuple[Space, str]] = set()
        self.missing: set[tuple[Space, str]] = set()

    def add_damaged(self, space: Space, name: str) -> None:
        if len(self.damaged) < MAX_KNOWN:
            self.damaged.add((space, name))

    def add_missing(self, space: Space, name: str) -> None:
        telemetry.DAMAGED_DATA.labels("missing_blob").inc()
        log.error("blob_missing", account=space.account, user=space.user, blob=name)
        if len(self.missing) < MAX_KNOWN:
            self.missing.add((space, name))
