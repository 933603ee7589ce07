"""What every embedder offers."""

from collections.abc import Sequence
from typing import Protocol

from storage.database import Space


class EmbedderUnavailable(Exception):
    """The embedder cannot turn text into vectors now; the message says why."""


class Embedder(Protocol):
    """Turns texts into unit vectors of `dimension` numbers.

    `model` is a stable name of everything that shapes the vectors (weights, quantization, pooling), but for what moves
    them by less than a cosine of .01: vectors of different names must not be compared.
    """

    @property
    def model(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    async def embed(self, texts: Sequence[str], *, bulk: bool = False, space: Space | None = None) -> list[bytes]:
        """One vector per text, in order, as little-endian float32 (see `vectors`).

        A caller that waits for an answer leaves `bulk` off and is served before all bulk work. `space`: whose texts
        they are. Vectors may be kept for a while and given to the same space again, and to no other, which could tell
        by the time that somebody has said the same.
        Raises EmbedderUnavailable when the model cannot be loaded or run, or after `close`.
        """
        ...

    async def warm(self) -> None:
        """Load the model now rather than at the first text. Raises EmbedderUnavailable."""
        ...

    async def close(self) -> None:
        """Release the model; texts still waiting fail with EmbedderUnavailable."""
        ...
