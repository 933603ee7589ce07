"""ONNX models run by the package `fastembed`, our extra `fastembed`: those that it knows by name, and any other whose
files lie in a folder."""

from collections.abc import Sequence
from typing import Any

from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.options import EmbeddingOptions
from runekeep_storage.embedders.vectors import to_unit_vectors


class FastEmbedModel:
    """A loaded model. Used by one thread. Without a folder it is loaded from the cache of `fastembed`, or downloaded.

    Raises EmbedderUnavailable if the package or the model is missing; errors of the package pass through.
    """

    def __init__(self, options: EmbeddingOptions, threads: int) -> None:
        try:
            from fastembed import TextEmbedding
        except ImportError as error:
            raise EmbedderUnavailable(
                "the package fastembed is not installed: pip install 'runekeep[fastembed]'"
            ) from error
        known = {str(model["model"]).lower() for model in TextEmbedding.list_supported_models()}
        if options.model.lower() not in known:
            _add_model(TextEmbedding, options)
        folder = None if options.path is None else str(options.path)
        self._dimension = options.dimension
        self._model = TextEmbedding(options.model, threads=threads, cuda=False, specific_model_path=folder)

    def run(self, texts: Sequence[str]) -> list[bytes]:
        """See `queued.Model`."""
        return to_unit_vectors(list(self._model.embed(texts)), len(texts), self._dimension)


def _add_model(registry: Any, options: EmbeddingOptions) -> None:
    """Describes a model to `fastembed` that it does not know."""
    from fastembed.common.model_description import ModelSource, PoolingType

    if options.path is None:
        raise EmbedderUnavailable(f"fastembed knows no model {options.model}; embedding.path must name its folder")
    registry.add_custom_model(
        model=options.model,
        pooling=PoolingType[options.pooling.upper()],
        normalization=True,
        # Required and not used: the files are in the folder.
        sources=ModelSource(hf=options.model),
        dim=options.dimension,
        model_file="model.onnx",
    )
