"""The embedders that the settings of a server describe: the one in use, and those that it can be changed to."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from runekeep_storage.embedders import Embedder, EmbeddingOptions, embedding_needs, open_embedder


class EmbedderSet:
    """`name`: of the embedder in use. `options`: descriptions of `openai` and `fastembed`, that of the embedder in use
    first. The others are opened when they are asked for, and all are closed together."""

    def __init__(self, name: str, threads: int, options: Sequence[EmbeddingOptions]) -> None:
        self._threads = threads
        self._options = options
        self.own = open_embedder(name, threads=threads, options=options[0])
        self._opened: dict[str, list[Embedder]] = {}

    def find(self, name: str, model: str) -> Embedder | None:
        """Returns the embedder of that name if it makes vectors of that model, else None."""
        if name not in self._opened:
            # Also those of other models are kept: the next search asks again, and opening them takes long.
            self._opened[name] = self.described(name)
        return next((embedder for embedder in self._opened[name] if embedder.model == model), None)

    def described(self, name: str, *, of_accounts: bool = True) -> list[Embedder]:
        """Returns an embedder, not loaded yet, for each description that fits the name; the caller closes them. Without
        the endpoints of accounts if they are not asked for. Raises ValueError for an unknown name."""
        fitting = [one if of_accounts else replace(one, by_account={}) for one in self._options if not one.lacks(name)]
        options = fitting if embedding_needs(name) else [EmbeddingOptions()]
        opened = (open_embedder(name, threads=self._threads, options=one) for one in options)
        return [embedder for embedder in opened if embedder is not None]

    async def close(self) -> None:
        for embedder in (self.own, *chain.from_iterable(self._opened.values())):
            if embedder is not None:
                await embedder.close()
