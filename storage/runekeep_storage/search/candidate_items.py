"""Reads the memories and passages of a search's candidates, and applies the filters that the index does not apply, or
not exactly."""

from collections.abc import Collection, Sequence

from runekeep_storage.database import Space, Tx
from runekeep_storage.index.base import Hit, PointKind
from runekeep_storage.indexing import passages
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search import filters, found_texts
from runekeep_storage.search.found_texts import Outline
from runekeep_storage.search.requests import FindRequest


async def read(
    tx: Tx, space: Space, hits: Sequence[Hit], revision: int, request: FindRequest
) -> tuple[dict[str, Memory | Passage], Collection[Outline]]:
    """Returns the items of the hits that exist and pass the filters, by point id, and outlines of the memories.
    Memories have their abstracts, and the fields if a filter needs them; the outlines have the sizes of their texts."""
    said = [hit for hit in hits if hit.kind is PointKind.PASSAGE]
    found: dict[str, Memory | Passage] = dict(
        await passages.of_points(
            tx, space, [((hit.session or "", hit.sequence or 0), hit.id) for hit in said], request.archived_by
        )
    )
    remembered = [hit for hit in hits if hit.kind is PointKind.MEMORY]
    keys = [(hit.uri, hit.version) for hit in remembered]
    alive = await found_texts.outlines(tx, space, keys, revision, with_fields=bool(request.fields))
    for hit in remembered:
        outline = alive.get((hit.uri, hit.version))
        # A deleted user who began again counts versions from 1 again, but revisions continue.
        if outline is not None and outline.memory.rev_from == hit.order:
            found[hit.id] = outline.memory
    return {id: item for id, item in found.items() if _fits(item, request)}, alive.values()


def _fits(item: Memory | Passage, request: FindRequest) -> bool:
    return next(filters.out_of_time(item, request), None) is None and filters.fields_match(item, request.fields)
