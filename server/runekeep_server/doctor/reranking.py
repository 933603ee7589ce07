"""Checks the reranker, as a server with these settings would find it."""

from collections.abc import AsyncIterator
from time import monotonic

from runekeep_server.doctor.check import Check, ok, problem
from runekeep_server.services import rerank_options
from runekeep_server.settings import Settings
from runekeep_storage.rerankers import RerankerUnavailable, open_reranker

_QUERY = "What does the user drink?"
_TEXTS = ("The user drinks green tea.", "The user has a dog.", "It rained on Monday.")
_ADVICE = {
    "endpoint": "Check RUNEKEEP_RERANK__URL, its form, model and seconds, and RUNEKEEP_RERANKER_API_KEY.",
    "fastembed": "Run pip install 'runekeep[fastembed]', and check RUNEKEEP_RERANK__MODEL and __PATH.",
}


async def reranker(settings: Settings) -> AsyncIterator[Check]:
    """Yields nothing without a reranker, which is optional."""
    opened = open_reranker(settings.reranker, threads=settings.embedder_threads, options=rerank_options(settings))
    if opened is None:
        return
    try:
        await opened.warm()
        began = monotonic()
        await opened.rerank(_QUERY, _TEXTS)
        seconds = monotonic() - began
    except RerankerUnavailable as error:
        yield problem("reranker.answers", str(error), _ADVICE[settings.reranker])
        return
    finally:
        await opened.close()
    yield ok("reranker.answers", f"{opened.name}; {len(_TEXTS)} texts take {seconds * 1000:.0f} ms")
