"""Memories written by callers: all changes of a request or none, in one revision, each on the version it names."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from runekeep.v1 import memory_service_pb2 as pb
from schemas.registry import Registry
from server.answer_sizes import DEFAULT_SIZES, AnswerSizes
from server.apply.versions import versions_of
from server.apply.workspace import Draft, current_of
from server.direct_changes import Change, carried_out, check_size, check_texts, read_changes, refuse_secrets
from server.errors import ApiError, too_large
from server.mutations import answered, mutate
from server.secret_scan import scan_for_secrets
from server.wire import memories as wire
from storage import memories, revisions, spaces
from storage.database import Space, Tx
from storage.errors import VersionConflict
from storage.records import Memory, MemoryWrite
from storage.store import Store

PREPARATIONS = 3
"""How often changes are prepared while their memories move in ways that leave the base versions right."""
MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Memories of one answer together, or fewer bytes where the server sends no more. A write whose answer cannot be sent
would look like one that failed."""
ENGINE = "caller"
"""Stands where versions name the engine of their extractor."""

_EXTRACTOR = json.dumps({"engine": ENGINE, "model": "", "version": ""})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """`unchanged`: URIs and versions of memories that are already as they were to be."""

    writes: list[MemoryWrite]
    unchanged: list[tuple[str, int]]

    @property
    def versions(self) -> dict[str, int]:
        """What each memory is at afterwards."""
        return {**{write.uri: write.version for write in self.writes}, **dict(self.unchanged)}


async def write(
    store: Store,
    space: Space,
    request: pb.WriteMemoriesRequest,
    *,
    withhold_secrets: bool,
    sizes: AnswerSizes = DEFAULT_SIZES,
) -> pb.WriteMemoriesResponse:
    """`withhold_secrets`: a text that holds a secret is refused.

    Raises ApiError, RequestReused, VersionConflict (memories kept moving), StoreUnavailable.
    """
    for attempt in range(1, PREPARATIONS + 1):
        try:
            # In a thread: the URIs are derived from key fields of any length.
            changes = await asyncio.to_thread(read_changes, store.registry, space.user, request.changes)
            check_texts(changes, sizes.memory)
            if withhold_secrets:
                await scan_for_secrets(refuse_secrets, changes)
            prepared = await _prepare(store, space, changes, sizes)
        except ApiError:
            # A repeat of what was done finds the versions that it made itself, or types that are gone by now.
            before = await answered(store.database, space, request, pb.WriteMemoriesResponse)
            if before is None:
                raise
            return before

        uris = [change.uri for change in changes]

        async def work(tx: Tx, prepared: _Prepared = prepared, uris: list[str] = uris) -> pb.WriteMemoriesResponse:
            revision, written = await _write(tx, space, prepared)
            return _answer(store, space, revision, [written[uri] for uri in uris], min(MAX_ANSWER_BYTES, sizes.record))

        try:
            answer = await mutate(store.database, space, request, pb.WriteMemoriesResponse, work)
        except VersionConflict:
            log.info("write_conflict", attempt=attempt)
            if attempt == PREPARATIONS:
                raise
            continue
        store.relay.wake()
        return answer
    raise AssertionError("unreachable")


async def _prepare(store: Store, space: Space, changes: Sequence[Change], sizes: AnswerSizes) -> _Prepared:
    current = await store.database.read(_current, space, [change.uri for change in changes], 8 * sizes.record)
    # In a thread: many patches of long texts take long and would block other calls.
    drafts = await asyncio.to_thread(_apply_changes, store.registry, changes, current, sizes.memory)
    writes = await versions_of(store, space, [draft for draft in drafts if draft.changed])
    return _Prepared(
        writes, [(draft.uri, draft.current.version) for draft in drafts if draft.current and not draft.changed]
    )


def _apply_changes(
    registry: Registry, changes: Sequence[Change], current: Mapping[str, tuple[Memory | None, int]], max_bytes: int
) -> list[Draft]:
    """Returns the memories as they are after the changes. Raises ApiError."""
    drafts = [carried_out(change, registry, *current[change.uri]) for change in changes]
    for change, draft in zip(changes, drafts, strict=True):
        check_size(change, draft, max_bytes)
    return drafts


async def _current(tx: Tx, space: Space, uris: Sequence[str], most_bytes: int) -> dict[str, tuple[Memory | None, int]]:
    """Raises ApiError TOO_LARGE for memories that take more than `most_bytes` together."""
    size = await memories.current_bytes(tx, space, uris)
    if size > most_bytes:
        what = f"The memories as they are take {size} bytes together, and {most_bytes} is the limit of one call"
        raise too_large(what, "Change fewer of them in one call")
    return {uri: await current_of(tx, space, uri) for uri in uris}


async def _write(tx: Tx, space: Space, prepared: _Prepared) -> tuple[int, dict[str, Memory]]:
    """The revision that holds the changes, and the memories in it by URI. Raises VersionConflict."""
    for uri, version in prepared.unchanged:
        await revisions.check_base(tx, space, uri, version)
    if prepared.writes:
        await spaces.ensure(tx, space)
        revision = await revisions.make(tx, space, prepared.writes, _EXTRACTOR, revisions.BY_HAND)
    else:
        revision, _ = await spaces.revisions(tx, space)
    versions = prepared.versions
    return revision, {uri: await memories.get(tx, space, uri, version=versions[uri]) for uri in versions}


def _answer(
    store: Store, space: Space, revision: int, written: Sequence[Memory], most_bytes: int
) -> pb.WriteMemoriesResponse:
    shown = [wire.memory(space.user, record, store.registry, pb.MEMORY_VIEW_FULL) for record in written]
    answer = pb.WriteMemoriesResponse(revision=revision, memories=shown)
    if answer.ByteSize() > most_bytes:
        what = f"The memories as they would be take {answer.ByteSize()} bytes, and an answer holds {most_bytes}"
        raise too_large(what, "Change fewer of them in one call, or keep them shorter")
    return answer
