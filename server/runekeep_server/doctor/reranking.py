"""Checks the reranker, as a server with these settings would find it."""

from collections.abc import AsyncIterator
from time import monotonic

from runekeep_server.doctor.check import Check, ok, problem
from runekeep_server.services import rerank_options
from runekeep_server.settings import Settings
from runekeep_storage.rerankers import Reranker, RerankerUnavailable, open_reranker

_QUERY = "What does the user drink?"
_TEXTS = ("The user drinks green tea.", "The user has a dog.", "It rained on Monday.")
_ADVICE = {
    "endpoint": "Check RUNEKEEP_RERANK__URL, its form, model and seconds, and RUNEKEEP_RERANKER_API_KEY.",
    "fastembed": "Run pip install 'runekeep[fastembed]', and check RUNEKEEP_RERANK__MODEL and __PATH.",
}


async def reranker(settings: Settings) -> AsyncIterator[Check]:
    """Yields nothing without a reranker, which is optional."""
    options, advice = rerank_options(settings), _ADVICE.get(settings.reranker, "")
    if settings.reranker != "endpoint" or options.url:
        opened = open_reranker(settings.reranker, threads=settings.embedder_threads, options=options)
        if opened is not None:
            yield await _check("reranker.answers", opened, advice)
    for account, one in options.by_account.items():
        if one is not None and (opened := open_reranker(settings.reranker, options=one)) is not None:
            yield await _check(f"reranker.account.{account}", opened, f"Check account_endpoints.{account}.rerank.")


async def _check(name: str, opened: Reranker, advice: str) -> Check:
    try:
        await opened.warm()
        began = monotonic()
        await opened.rerank(_QUERY, _TEXTS)
        seconds = monotonic() - began
    except RerankerUnavailable as error:
        return problem(name, str(error), advice)
    finally:
        await opened.close()
    return ok(name, f"{opened.name}; {len(_TEXTS)} texts take {seconds * 1000:.0f} ms")
