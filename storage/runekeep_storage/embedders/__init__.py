"""Embedders by name. An embedder runs once per server and never on its event loop."""

from runekeep_storage.embedders.base import Embedder, EmbedderUnavailable
from runekeep_storage.embedders.options import EmbeddingOptions, embedding_needs

KNOWN = ("minilm", "bilingual", "openai", "fastembed", "minilm+openai", "minilm+fastembed", "none")

__all__ = ["KNOWN", "Embedder", "EmbedderUnavailable", "EmbeddingOptions", "embedding_needs", "open_embedder"]


def open_embedder(name: str, *, threads: int = 2, options: EmbeddingOptions | None = None) -> Embedder | None:
    """Returns the embedder of that name, not loaded yet; None for `none`, which makes search lexical only.

    `threads`: the number of threads it computes with; `options`: for `openai` and `fastembed`. Raises ValueError for a
    name that is not in `KNOWN`.
    """
    if name == "none":
        return None
    # Imported here: the index process imports this package for its vectors but opens no embedder.
    from runekeep_storage.embedders.queued import QueuedEmbedder

    options = options or EmbeddingOptions()
    match name:
        case "minilm+openai" | "minilm+fastembed":
            from runekeep_storage.embedders.pair import PairEmbedder

            first, second = (open_embedder(one, threads=threads, options=options) for one in name.split("+"))
            assert first is not None and second is not None
            return PairEmbedder(first, second)
        case "minilm":
            from runekeep_storage.embedders import minilm

            return QueuedEmbedder(minilm.MODEL, minilm.DIMENSION, lambda: minilm.MiniLm(threads))
        case "bilingual":
            from runekeep_storage.embedders import bilingual

            return QueuedEmbedder(bilingual.MODEL, bilingual.DIMENSION, lambda: bilingual.Bilingual(threads))
        case "fastembed":
            from runekeep_storage.embedders.fastembed_models import FastEmbedModel

            return QueuedEmbedder(
                options.identity(name),
                options.dimension,
                lambda: FastEmbedModel(options, threads),
                options.form,
                options.query_seconds,
            )
        case "openai" if options.by_account:
            from runekeep_storage.embedders.by_account import EmbedderByAccount

            return EmbedderByAccount(options)
        case "openai":
            from runekeep_storage.embedders.remote import RemoteEmbedder

            return RemoteEmbedder(options)
    raise ValueError(f"unknown embedder {name!r}; known: {', '.join(KNOWN)}")
