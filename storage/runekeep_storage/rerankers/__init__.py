"""Rerankers by name. A reranker reads the query together with each candidate, and so orders the best candidates of a
search better than the search itself. It is optional: without its answer the order of the search stays."""

from runekeep_storage.rerankers.by_account import Rerankers
from runekeep_storage.rerankers.options import RerankOptions
from runekeep_storage.rerankers.reranker import Reranker, RerankerUnavailable

KNOWN = ("none", "endpoint", "fastembed")

__all__ = ["KNOWN", "RerankOptions", "Reranker", "RerankerUnavailable", "Rerankers", "open_reranker", "open_rerankers"]


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


def open_rerankers(name: str, *, threads: int = 2, options: RerankOptions | None = None) -> Rerankers:
    """Returns the reranker of that name for each account, see `open_reranker`."""
    options = options or RerankOptions()
    if name != "endpoint":
        return Rerankers(open_reranker(name, threads=threads, options=options))
    opened: dict[tuple[str, ...], Reranker | None] = {}

    def of(one: RerankOptions | None) -> Reranker | None:
        if one is None or not one.url:
            return None
        key = one.url, one.api_key, one.form, one.model
        if key not in opened:
            opened[key] = open_reranker(name, options=one)
        return opened[key]

    return Rerankers(of(options), {account: of(one) for account, one in options.by_account.items()})
