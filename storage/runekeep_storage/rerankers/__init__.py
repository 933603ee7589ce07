"""Rerankers by name. A reranker reads the query together with each candidate, and so orders the best candidates of a
search better than the search itself. It is optional: without its answer the order of the search stays."""

from runekeep_storage.rerankers.options import RerankOptions
from runekeep_storage.rerankers.reranker import Reranker, RerankerUnavailable

KNOWN = ("none", "endpoint", "fastembed")

__all__ = ["KNOWN", "RerankOptions", "Reranker", "RerankerUnavailable", "open_reranker"]


def open_reranker(name: str, *, threads: int = 2, options: RerankOptions | None = None) -> Reranker | None:
    """Returns the reranker of that name, not loaded or checked yet; None for `none`. `threads`: the number of threads
    that `fastembed` computes with. Raises ValueError for a name that is not in `KNOWN`."""
    options = options or RerankOptions()
    match name:
        case "none":
            return None
        case "endpoint":
            from runekeep_storage.rerankers.rerank_api import RerankApi

            return Reranker(RerankApi(options), options, options.parallel_requests)
        case "fastembed":
            from runekeep_storage.rerankers.cross_encoder import CrossEncoder

            return Reranker(CrossEncoder(options, threads), options, parallel=1)
    raise ValueError(f"unknown reranker {name!r}; known: {', '.join(KNOWN)}")
