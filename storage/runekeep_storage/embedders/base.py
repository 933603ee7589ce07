"""The interface of every embedder."""

from collections.abc import Sequence
from typing import Protocol

from runekeep_storage.database import Space


class EmbedderUnavailable(Exception):
    """The embedder cannot turn text into vectors now; the message says why."""


class Embedder(Protocol):
    """Turns texts into unit vectors of `dimension` numbers.

    `model` is a stable name for everything that shapes the vectors (weights, quantization, pooling, prefixes), except
    changes that move them by less than a cosine of .01. Vectors of different names must not be compared.
    """

    @property
    def model(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def bulk_texts(self) -> int:
        """Number of texts of background work that keep it busy."""
        ...

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        """Returns one vector for each text, in order, as little-endian float32 (see `vectors`).

        `query`: the texts are searched by. Other texts are stored or compared, and some models need to know which.
        `bulk`: leave it off if a caller waits for the answer; such texts go before all bulk work. `space`: the owner of
        the texts, required for texts of users, because the owner's account decides which endpoint gets them. Texts of
        bulk work may be of several users of that account. Vectors of other texts may be cached for a while and returned
        to the same space only: another space could tell from the timing that somebody has used the same text.

        Raises EmbedderUnavailable if the model cannot be loaded, reached or run, or after `close`.
        """
        ...

    async def warm(self) -> None:
        """Loads or reaches the model now rather than at the first text. Raises EmbedderUnavailable, also if its vectors
        are not of `dimension` numbers."""
        ...

    async def close(self) -> None:
        """Releases the model; waiting texts fail with EmbedderUnavailable."""
        ...
