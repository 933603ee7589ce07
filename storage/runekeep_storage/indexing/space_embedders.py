"""Chooses the embedder for a space: while the embedder is changed, spaces differ in it."""

from collections.abc import Callable, Sequence

from runekeep_storage.database import Space, SpaceDatabase
from runekeep_storage.embedders import Embedder, EmbedderUnavailable
from runekeep_storage.indexing import embedder_change
from runekeep_storage.indexing.attachment import Attachment

Find = Callable[[str, str], Embedder | None]
"""Returns the embedder of a name in the settings if it makes vectors of a model, else None."""


class SpaceEmbedders:
    """The embedders of one server. `own`: the one in its settings, None for a server without; `find`: for others."""

    def __init__(
        self,
        database: SpaceDatabase,
        attachment: Attachment,
        own: Embedder | None,
        find: Find = lambda name, model: None,
    ) -> None:
        self.own = own
        self._database = database
        self._attachment = attachment
        self._find = find

    @property
    def main(self) -> Embedder | None:
        """The embedder of the vectors in `dense`; None for none."""
        return self._by_model(self._attachment.models.main)

    @property
    def other(self) -> Embedder | None:
        """The embedder of the vectors in `dense_next`; None for none."""
        return self._by_model(self._attachment.models.other)

    @property
    def knows_other(self) -> bool:
        """Whether the settings of this server describe the new embedder."""
        return not isinstance(self.other, _Unknown | None)

    @property
    def bulk_texts_of_other(self) -> int:
        return self.other.bulk_texts if self.other is not None else 0

    async def of_space(self, space: Space) -> Embedder | None:
        """Returns the embedder that the space is searched by; None for none."""
        if not self._attachment.models.other:
            return self.main
        model = await self._database.read(embedder_change.find_searched_model, space)
        return self.main if model is None else self.of_model(model)

    def of_model(self, model: str) -> Embedder | None:
        """Returns the embedder of a model that `embedder_change.find_searched_model` returned."""
        models = self._attachment.models
        return self._by_model(model if model == models.other else models.main)

    def _by_model(self, model: str) -> Embedder | None:
        if not model:
            return None
        if self.own is not None and self.own.model == model:
            return self.own
        change = self._attachment.change
        if change is not None:
            for name, space in ((change.name, change.target), (change.source_name, change.source)):
                if space.model == model:
                    return self._find(name, model) or _Unknown(model, space.dimension)
        return _Unknown(model, 0)


class _Unknown:
    """An embedder that the settings of this server do not describe."""

    bulk_texts = 32

    def __init__(self, model: str, dimension: int) -> None:
        self.model = model
        self.dimension = dimension

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        raise EmbedderUnavailable(f"the settings of this server describe no embedder of model {self.model!r}")

    async def warm(self) -> None:
        await self.embed([])

    async def close(self) -> None:
        pass
