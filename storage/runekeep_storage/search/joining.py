"""Joins ranked candidates of the index with the store at one revision."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile

from runekeep_storage.database import Space, Tx
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search import candidate_items, found_texts, snapshot
from runekeep_storage.search.found_texts import Outline, Room
from runekeep_storage.search.ranking import Ranked
from runekeep_storage.search.requests import FindRequest, Found
from runekeep_storage.search.result_selector import ResultSelector
from runekeep_storage.search.snapshot import SearchStart

READ_BATCH = 100
"""Minimum number of candidates whose rows are read together, after the first read left places free."""


async def join(
    tx: Tx,
    space: Space,
    request: FindRequest,
    ranked: Sequence[Ranked],
    revision: int,
    start: SearchStart,
) -> tuple[list[Found], bool]:
    """Returns candidates alive at the revision, up to the limit, and whether the result is final: the limit is reached,
    or the candidates already fall below the threshold.

    Raises SearchUnanswerable, see `snapshot.check_grace`.
    """
    await snapshot.check_grace(tx, space, start)
    least = -math.inf if request.score_threshold is None else request.score_threshold
    cut = bool(ranked) and ranked[-1].score < least
    results: list[Found] = []
    outlines: dict[tuple[str, int], Outline] = {}
    choice = ResultSelector(request.limit, request.known, request.quotas)
    above = takewhile(lambda candidate: candidate.score >= least, ranked)
    rest = (candidate for candidate in above if choice.wants(candidate.hit))
    size = request.limit
    while not choice.full and (some := list(islice(rest, size))):
        size = max(size, READ_BATCH)
        hits = [candidate.hit for candidate in some]
        items, read = await candidate_items.read(tx, space, hits, revision, request)
        for candidate in some:
            item = items.get(candidate.id)
            if choice.full:
                break
            if item is not None and choice.takes(candidate.hit, item):
                results.append(Found(item, candidate))
        outlines |= {one.key: one for one in read}
    return await _with_texts(tx, space, results, outlines, revision, request.room), choice.full or cut


async def _with_texts(
    tx: Tx,
    space: Space,
    results: Sequence[Found],
    outlines: Mapping[tuple[str, int], Outline],
    revision: int,
    room: Room,
) -> list[Found]:
    """Returns the results with their texts, as far as there is room."""
    said = [one.item.content for one in results if isinstance(one.item, Passage)]
    taken = sum(len(text.encode()) + found_texts.RESULT_BYTES for text in said)
    found = [outlines[one.item.uri, one.item.version] for one in results if isinstance(one.item, Memory)]
    read = await found_texts.read(tx, space, found, revision, room, taken) if found else {}
    told = []
    for one in results:
        if isinstance(one.item, Passage):
            told.append(one)
        elif (texts := read.get((one.item.uri, one.item.version))) is not None:
            told.append(Found(texts[0], one.ranked, texts[1]))
    return told
