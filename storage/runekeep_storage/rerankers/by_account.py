"""The rerankers of one server: that of most accounts, and those of accounts with an endpoint of their own."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from runekeep_storage.rerankers.reranker import Reranker


@dataclass(frozen=True, slots=True)
class Rerankers:
    """`default`: of all accounts that are not in `by_account`; None for none."""

    default: Reranker | None = None
    by_account: Mapping[str, Reranker | None] = field(default_factory=dict)

    def of_account(self, account: str) -> Reranker | None:
        """Returns None for an account whose searches are not reranked."""
        return self.by_account.get(account, self.default)

    def __bool__(self) -> bool:
        return bool(self._all())

    def start(self) -> None:
        """See `Reranker.start`."""
        for one in self._all():
            one.start()

    async def warm(self) -> None:
        """Reaches all of them. Raises RerankerUnavailable."""
        await asyncio.gather(*(one.warm() for one in self._all()))

    async def close(self) -> None:
        for one in self._all():
            await one.close()

    def _all(self) -> list[Reranker]:
        found = [one for one in (self.default, *self.by_account.values()) if one is not None]
        # Accounts with the same endpoint share a reranker.
        return list({id(one): one for one in found}.values())
