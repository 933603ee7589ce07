"""Lists every place that texts of users are sent to."""

import re
from collections.abc import Iterator

from runekeep_common.addresses import is_loopback
from runekeep_server.doctor.check import Check, ok, warning
from runekeep_server.settings import Settings
from runekeep_server.settings.account_endpoints import KINDS, endpoints_of
from runekeep_storage.embedders import embedding_needs
from runekeep_storage.store import POSTGRES_SCHEMES

NAME = "text.destination"
_IN_THE_CLEAR = ("http://", "grpc://")


def destinations(settings: Settings) -> Iterator[Check]:
    """Yields one check for each place; a warning if texts travel to another machine without encryption. The extractors
    report the model's server themselves."""
    if settings.store_url.startswith(POSTGRES_SCHEMES):
        yield ok(NAME, f"{_host(settings.store_url)}: messages and memories (PostgreSQL, `store_url`)")
    for url in filter(None, settings.index_url.split(",")):
        yield _over_web(url.strip(), "names of memories, words and vectors (Qdrant, `index_url`)")
    if settings.blob_url:
        yield ok(NAME, f"{_host(settings.blob_url)}: large outputs and buckets (`blob_url`)")
    all_texts = "every message, memory and query"
    if "url" in embedding_needs(settings.embedder):
        yield from _by_account(settings, "embedding", settings.embedding.url, all_texts)
    if settings.reranker == "endpoint":
        what = "queries, and the messages and memories that they find,"
        yield from _by_account(settings, "rerank", settings.rerank.url, what)
    what = f"while the embedder is changed to it, {all_texts}"
    yield from _by_account(settings, "next_embedding", settings.next_embedding.url, what)
    if not settings.store_url.startswith(POSTGRES_SCHEMES) and not settings.index_url and not settings.blob_url:
        yield ok(NAME, f"files below {settings.data_dir.resolve()}")


def _by_account(settings: Settings, kind: str, url: str, what: str) -> Iterator[Check]:
    """Yields the endpoints of a kind. `url`: of the default one; empty for none."""
    own = endpoints_of(settings.account_endpoints, kind)
    if url:
        whose = f"all accounts but {', '.join(own)}" if own else "all accounts"
        yield _over_web(url, f"{what} of {whose} (`{KINDS[kind]}`)")
    for account, endpoint in own.items():
        if endpoint is not None:
            yield _over_web(endpoint.url, f"{what} of account {account} (`account_endpoints.{account}.{kind}`)")


def _over_web(url: str, what: str) -> Check:
    host = _host(url)
    found = f"{host}: {what}"
    if url.startswith(_IN_THE_CLEAR) and not is_loopback(re.sub(r":\d+$", "", host).strip("[]")):
        return warning(NAME, found, "Everybody on the way can read it. Give a URL with TLS.")
    return ok(NAME, found)


def _host(url: str) -> str:
    """Returns host and port of a URL, without user and password. It looks for the last `@`, because a password that is
    not escaped may hold any character."""
    return re.split("[/?#]", url.partition("://")[2].rpartition("@")[2])[0]
