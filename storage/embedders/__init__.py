"""Embedders by name. An embedder runs once per server and never on its event loop."""

from storage.embedders.base import Embedder, EmbedderUnavailable

KNOWN = ("minilm", "bilingual", "none")

__all__ = ["KNOWN", "Embedder", "EmbedderUnavailable", "open_embedder"]


def open_embedder(name: str, *, threads: int = 2) -> Embedder | None:
    """The embedder of that name, not loaded yet; None for `none`, which means that search is lexical only.

    `threads`: how many it computes with. Raises ValueError for a name that is not in `KNOWN`.
    """
    if name == "none":
        return None
    # Here, since the index process, which opens no embedder, needs this package for its vectors.
    from storage.embedders.queued import QueuedEmbedder

    if name == "minilm":
        from storage.embedders import minilm

        return QueuedEmbedder(minilm.MODEL, minilm.DIMENSION, lambda: minilm.MiniLm(threads))
    if name == "bilingual":
        from storage.embedders import bilingual

        return QueuedEmbedder(bilingual.MODEL, bilingual.DIMENSION, lambda: bilingual.Bilingual(threads))
    raise ValueError(f"unknown embedder {name!r}; known: {', '.join(KNOWN)}")
