"""Direct writes of memories by callers: all changes of a request or none, in one revision, each on its base version."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories.direct_changes import (
    Change,
    carried_out,
    check_size,
    check_texts,
    read_changes,
    texts_of,
)
from runekeep_server.merging.versions import versions_of
from runekeep_server.merging.workspace import Draft
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES, AnswerSizes
from runekeep_server.protocol.errors import too_large
from runekeep_server.protocol.idempotency import prepare_and_mutate
from runekeep_server.protocol.secret_scan import refuse_secrets, scan_for_secrets
from runekeep_server.wire import memories as wire
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import memories, revisions
from runekeep_storage.records import Memory, MemoryWrite
from runekeep_storage.spaces import spaces
from runekeep_storage.store import Store

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Maximum bytes of the memories in one answer, or fewer if the server sends less. A write whose answer cannot be sent
would look like a failed one."""
ENGINE = "caller"
"""The engine name in versions that a caller wrote."""

_EXTRACTOR = json.dumps({"engine": ENGINE, "model": "", "version": ""})


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Prepared writes. `uris`: the memories that the request names, in its order. `unchanged`: URIs and versions of
    those that already have the wanted content."""

    uris: list[str]
    writes: list[MemoryWrite]
    unchanged: list[tuple[str, int]]

    @property
    def versions(self) -> dict[str, int]:
        """The version of each memory after the write, by URI."""
        return {**{write.uri: write.version for write in self.writes}, **dict(self.unchanged)}


async def write(
    store: Store,
    space: Space,
    request: pb.WriteMemoriesRequest,
    *,
    withhold_secrets: bool,
    sizes: AnswerSizes = DEFAULT_SIZES,
) -> pb.WriteMemoriesResponse:
    """Applies the changes of a request. `withhold_secrets`: refuse a text that contains a secret.

    Raises ApiError, RequestReused, VersionConflict (memories kept changing), StoreUnavailable.
    """

    async def prepare() -> _Prepared:
        # In a thread: the URIs are derived from key fields of any length.
        changes = await asyncio.to_thread(read_changes, store.registry, space.user, request.changes)
        check_texts(changes, sizes.memory)
        if withhold_secrets:
            await scan_for_secrets(refuse_secrets, texts_of(changes))
        return await _prepare(store, space, changes, sizes)

    async def work(prepared: _Prepared, tx: Tx) -> pb.WriteMemoriesResponse:
        revision, written = await _write(tx, space, prepared)
        return _answer(store, space, revision, written, min(MAX_ANSWER_BYTES, sizes.record))

    answer = await prepare_and_mutate(store.database, space, request, pb.WriteMemoriesResponse, prepare, work)
    store.relay.wake()
    return answer


async def _prepare(store: Store, space: Space, changes: Sequence[Change], sizes: AnswerSizes) -> _Prepared:
    uris = [change.uri for change in changes]
    current = await store.database.read(_current, space, uris, 8 * sizes.record)
    # In a thread: many patches of long texts take long and would block other calls.
    drafts = await asyncio.to_thread(_apply_changes, store.registry, changes, current, sizes.memory)
    writes = await versions_of(store, space, [draft for draft in drafts if draft.changed])
    return _Prepared(
        uris, writes, [(draft.uri, draft.current.version) for draft in drafts if draft.current and not draft.changed]
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
    """Returns the current memories. Raises ApiError TOO_LARGE if they take more than `most_bytes` together."""
    size = await memories.current_bytes(tx, space, uris)
    if size > most_bytes:
        what = f"The memories as they are take {size} bytes together, and {most_bytes} is the limit of one call"
        raise too_large(what, "Change fewer of them in one call")
    return await memories.current_with_newest_versions(tx, space, uris)


async def _write(tx: Tx, space: Space, prepared: _Prepared) -> tuple[int, list[Memory]]:
    """Writes the changes. Returns the revision, and the memories in it in the order of the request. Raises
    VersionConflict."""
    for uri, version in prepared.unchanged:
        await revisions.check_base(tx, space, uri, version)
    if prepared.writes:
        await spaces.ensure(tx, space)
        revision = await revisions.make(tx, space, prepared.writes, _EXTRACTOR, revisions.BY_HAND)
    else:
        revision, _ = await spaces.revisions(tx, space)
    versions = prepared.versions
    return revision, [await memories.get(tx, space, uri, version=versions[uri]) for uri in prepared.uris]


def _answer(
    store: Store, space: Space, revision: int, written: Sequence[Memory], most_bytes: int
) -> pb.WriteMemoriesResponse:
    shown = [wire.memory(space.user, record, store.registry, pb.MEMORY_VIEW_FULL) for record in written]
    answer = pb.WriteMemoriesResponse(revision=revision, memories=shown)
    if answer.ByteSize() > most_bytes:
        what = f"The memories as they would be take {answer.ByteSize()} bytes, and an answer holds {most_bytes}"
        raise too_large(what, "Change fewer of them in one call, or keep them shorter")
    return answer
