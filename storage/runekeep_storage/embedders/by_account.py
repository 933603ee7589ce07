"""Embeds the texts of each account by the endpoint that is set for it.

Each endpoint has its own queues, batches and pauses, so that no request holds texts of accounts with different
endpoints, and no endpoint waits for another one.
"""

import asyncio
from collections.abc import Sequence

from runekeep_storage.database import Space
from runekeep_storage.embedders.base import EmbedderUnavailable
from runekeep_storage.embedders.known_vector import KnownVector
from runekeep_storage.embedders.options import EmbeddingOptions
from runekeep_storage.embedders.remote import RemoteEmbedder, name_of_vectors


class EmbedderByAccount:
    """See `Embedder`. All endpoints must serve the model of the default one: one whose vectors differ is refused like
    one that is away. Until the default endpoint has answered once, be it before a restart, no other is asked, because
    nobody knows the model's vectors."""

    def __init__(self, options: EmbeddingOptions) -> None:
        self.model = name_of_vectors(options)
        self.dimension = options.dimension
        self.bulk_texts = options.batch_texts * options.parallel_batches
        self._known = KnownVector(options.check_file, self.model)
        self._is_known = False
        self._opened: dict[tuple[str, str], RemoteEmbedder] = {}
        self._default = self._open(options)
        self._by_account = {account: self._open(one) for account, one in options.by_account.items()}

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        """See `Embedder.embed`. Raises EmbedderUnavailable too for texts without an owner: they have no endpoint."""
        if space is None:
            raise EmbedderUnavailable("endpoints are set by account, and these texts have no owner")
        endpoint = self._by_account.get(space.account, self._default)
        if endpoint is self._default:
            return await endpoint.embed(texts, query=query, bulk=bulk, space=space)
        if not self._is_known:
            self._is_known = await asyncio.to_thread(self._known.is_kept, self.dimension)
        if not self._is_known:
            await self._default.warm()
        try:
            return await endpoint.embed(texts, query=query, bulk=bulk, space=space)
        except EmbedderUnavailable as error:
            # An operator who reads this should not look at the endpoint of all other accounts.
            raise EmbedderUnavailable(f"account {space.account}: {error}") from error

    async def warm(self) -> None:
        """See `Embedder.warm`. Reaches all endpoints."""
        await self._default.warm()
        await asyncio.gather(*(one.warm() for one in self._opened.values() if one is not self._default))

    async def close(self) -> None:
        """See `Embedder.close`."""
        await asyncio.gather(*(one.close() for one in self._opened.values()))

    def _open(self, options: EmbeddingOptions) -> RemoteEmbedder:
        """Returns the embedder of an endpoint. Accounts with the same endpoint and key share it."""
        key = options.url, options.api_key
        if key not in self._opened:
            self._opened[key] = RemoteEmbedder(options, self._known)
        return self._opened[key]
