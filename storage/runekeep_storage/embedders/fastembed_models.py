"""Embedding models run by the package `fastembed`, see `local_models`."""

from collections.abc import Sequence

from runekeep_storage.embedders.options import EmbeddingOptions
from runekeep_storage.embedders.vectors import to_unit_vectors
from runekeep_storage.endpoints.local_models import load_model


class FastEmbedModel:
    """A loaded model. Used by one thread. Raises ModelMissing; errors of the package pass through."""

    def __init__(self, options: EmbeddingOptions, threads: int) -> None:
        self._dimension = options.dimension
        self._model = load_model(
            "TextEmbedding",
            options.model,
            options.path,
            threads,
            setting="embedding",
            pooling=options.pooling.upper(),
            normalization=True,
            dim=options.dimension,
        )

    def run(self, texts: Sequence[str]) -> list[bytes]:
        """See `queued.Model`."""
        return to_unit_vectors(list(self._model.embed(texts)), len(texts), self._dimension)
