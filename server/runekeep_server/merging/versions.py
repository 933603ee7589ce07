"""Turns drafts into versions to write: renders them, and embeds them if the embedder is available."""

import asyncio
import json
from collections.abc import Sequence

import structlog

from runekeep_schemas.documents.render import index_text
from runekeep_schemas.memory_types.event_time import happened_at, tags_of
from runekeep_server.merging.workspace import Draft
from runekeep_storage.database import Space
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.index import sparse
from runekeep_storage.records import MemoryWrite
from runekeep_storage.store import Store

log = structlog.get_logger(__name__)


async def versions_of(store: Store, space: Space, changed: Sequence[Draft]) -> list[MemoryWrite]:
    """Returns the next version of each draft; a delete for a draft without fields. Call it outside of transactions,
    because it embeds."""
    texts = {one.uri: index_text(one.type, one.fields, one.uri) for one in changed if one.fields is not None}
    vectors, model = await _vectors(store, space, texts)

    def make_writes() -> list[MemoryWrite]:
        return [_make_write(draft, texts.get(draft.uri, ""), vectors.get(draft.uri), model) for draft in changed]

    # In a thread: rendering the views of a memory of some megabytes takes half a second and would block other calls.
    return await asyncio.to_thread(make_writes)


def _make_write(draft: Draft, text: str, dense: bytes | None, model: str) -> MemoryWrite:
    """Returns the version to write for a draft. `text` is the text to index. `dense` is None if there is no vector
    yet."""
    gone = draft.fields is None
    return MemoryWrite(
        uri=draft.uri,
        base_version=draft.current.version if draft.current else 0,
        version=draft.newest_version + 1,
        memory_type=draft.type.name,
        peer_id=draft.peer,
        fields=json.dumps(draft.fields or {}, ensure_ascii=False),
        content=draft.content(),
        abstract="" if gone else draft.abstract(),
        overview="" if gone else draft.overview(),
        sources=json.dumps(draft.sources),
        dense=dense,
        dense_model=model if dense is not None else "",
        sparse=sparse.encode_document(text).to_bytes(),
        deleted=gone,
        created_at=draft.created_at,
        origins=draft.message_runs(),
        renamed_from=draft.renamed_from,
        happened_at=happened_at(draft.type, draft.fields or {}),
        tags=tags_of(draft.fields or {}),
    )


async def _vectors(store: Store, space: Space, texts: dict[str, str]) -> tuple[dict[str, bytes], str]:
    """Returns vectors by URI, and the embedder's model. If the embedder is unavailable, the change is written without
    vectors, and the relay adds them later."""
    if not texts or (embedder := await store.embedders.of_space(space)) is None:
        return {}, ""
    try:
        vectors = await embedder.embed(list(texts.values()), space=space)
    except EmbedderUnavailable as error:
        log.warning("apply_without_vectors", texts=len(texts), error=str(error))
        return {}, ""
    return dict(zip(texts, vectors, strict=True)), embedder.model
