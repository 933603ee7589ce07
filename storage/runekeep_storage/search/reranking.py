"""Has a reranker order the best candidates of a search."""

from collections.abc import Sequence
from itertools import islice, takewhile

import structlog

from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.index.base import Hit
from runekeep_storage.memories import memories
from runekeep_storage.records import Memory, Passage
from runekeep_storage.rerankers import Reranker, RerankerUnavailable
from runekeep_storage.search import candidate_items
from runekeep_storage.search.ranking import Order
from runekeep_storage.search.requests import FindRequest

_log = structlog.get_logger(__name__)


class Reranking:
    """The reranking of one search. It asks the reranker once, also if the search widens. `has_failed`: the order is
    that without the reranker."""

    def __init__(
        self, reranker: Reranker, database: SpaceDatabase, space: Space, request: FindRequest, revision: int
    ) -> None:
        self._reranker = reranker
        self._database = database
        self._space = space
        self._request = request
        self._revision = revision
        self._scores: dict[str, float] | None = None
        self.has_failed = False

    async def apply(self, ranked: Order) -> Order:
        """Returns the candidates, the best of them in the reranker's order."""
        if self._scores is None:
            self._scores = await self._ask(self._best(ranked))
        return ranked.reranked(self._scores)

    def _best(self, ranked: Order) -> list[Hit]:
        """Returns the hits to rerank. What the caller knows already, and what is below the threshold, is left out."""
        least, known = self._request.score_threshold, self._request.known
        above = takewhile(lambda one: least is None or one.score >= least, ranked)
        new = (one.hit for one in above if known is None or not known(one.hit))
        return list(islice(new, self._reranker.options.candidates))

    async def _ask(self, hits: Sequence[Hit]) -> dict[str, float]:
        """Returns the scores by point id; none if the reranker has failed, or there is nothing to order."""
        options = self._reranker.options
        query = self._request.text[: options.max_characters]
        texts: dict[str, str] = {}
        room = options.request_bytes - len(query.encode())
        for id, text in (await self._database.read(self._read, self._space, hits)).items():
            room -= len(text.encode())
            if room < 0:
                break
            texts[id] = text
        if len(texts) < 2:
            return {}
        try:
            scores = await self._reranker.rerank(query, list(texts.values()))
        except RerankerUnavailable as error:
            self.has_failed = True
            _log.info("find_without_reranker", error=str(error))
            return {}
        return dict(zip(texts, scores, strict=True))

    async def _read(self, tx: Tx, space: Space, hits: Sequence[Hit]) -> dict[str, str]:
        """Returns the texts of the candidates that the search may return, by point id, best first."""
        longest = self._reranker.options.max_characters
        items, _ = await candidate_items.read(tx, space, hits, self._revision, self._request)
        keys = [(one.uri, one.version) for one in items.values() if isinstance(one, Memory)]
        columns = f"m.uri, m.version, substr(m.content, 1, {longest:d}) AS content"
        contents = await memories.rows_alive(tx, space, keys, self._revision, columns)

        def text(item: Memory | Passage) -> str:
            if isinstance(item, Passage):
                return item.content[:longest]
            content = contents[item.uri, item.version]["content"]
            # The name is the subject, which the content seldom repeats.
            name = item.uri.rpartition("/")[2].removesuffix(".md")
            abstract = "" if item.abstract in content else item.abstract
            return "\n".join(filter(None, (name, abstract, content)))[:longest]

        return {hit.id: text(items[hit.id]) for hit in hits if hit.id in items}
