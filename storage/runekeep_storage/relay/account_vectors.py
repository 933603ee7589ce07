"""Makes vectors of rows that lack one, for each account in a task of its own: accounts may have endpoints of their own,
and one that is away or slow stops no other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Final

import structlog

from runekeep_storage.database import Space
from runekeep_storage.embedders import Embedder, EmbedderUnavailable
from runekeep_storage.endpoints.outage import Outage
from runekeep_storage.relay.missing_vectors import Missing

MAX_EMBED_SECONDS: Final = 60.0
"""How long one call of the embedder may take."""
LATE_SECONDS: Final = 5.0
"""How long `make` waits for vectors. Later ones are written when they are there."""
MAX_LATE_ACCOUNTS: Final = 16
"""While this many calls are under way, slow accounts get no new one."""

log = structlog.get_logger(__name__)


class AccountVectors:
    """Makes missing vectors, one task for each account.

    `write` gets rows with their vectors and the model, and returns how many rows it wrote. `ended` gets the rows of one
    account after each attempt, and how many of them got a vector; None if the embedder is away for the account.
    `waiting_event`: the log event of that."""

    def __init__(
        self,
        write: Callable[[Iterable[tuple[Missing, bytes]], str], Awaitable[int]],
        waiting_event: str,
        ended: Callable[[list[Missing], int | None], None],
    ) -> None:
        self._write_vectors = write
        self._waiting_event = waiting_event
        self._ended = ended
        self._outages: dict[str, Outage] = {}
        """Failures of the embedder since its last success, by account."""
        self._max_texts: dict[str, int] = {}
        """Maximum number of texts at once, of accounts for which a call took too long."""
        self._late: set[str] = set()
        """Accounts whose last call took longer than LATE_SECONDS, in vain or not."""
        self._tasks: dict[str, asyncio.Task[int | None]] = {}
        """The calls that are under way, by account."""

    @property
    def is_making(self) -> bool:
        return bool(self._tasks)

    @property
    def problem(self) -> str:
        """What is wrong with the embedder, for one account; empty for nothing."""
        return next((outage.problem for outage in self._outages.values()), "")

    @property
    def pause_left(self) -> float:
        """After how many seconds the first account is tried again; 0 if none is left alone."""
        return min((outage.pause_left for outage in self._outages.values() if outage.is_paused), default=0.0)

    def is_slow(self, account: str) -> bool:
        """Returns whether the last call for the account failed or was late."""
        return account in self._outages or account in self._late

    def is_due(self, account: str) -> bool:
        """Returns whether the last call for the account failed, but not late, and the pause after it is over."""
        outage = self._outages.get(account)
        return outage is not None and not outage.is_paused and account not in self._late

    def left_alone(self) -> set[str]:
        """Returns the accounts of which no rows are to be read now: vectors of theirs are being made, or the embedder
        failed for them just now, or is slow for them and for too many others."""
        paused = {account for account, outage in self._outages.items() if outage.is_paused}
        late = self._late if len(self._tasks) >= MAX_LATE_ACCOUNTS else set()
        return paused | late | self._tasks.keys()

    def room(self, account: str, taken: Sequence[Missing], limit: int) -> int:
        """Returns how many rows of the account may be added to those `taken`, of at most `limit` in all; less than one
        for none."""
        # Of an account whose endpoint failed, one row shows whether it is back.
        most = 1 if account in self._outages else self._max_texts.get(account, limit)
        return min(limit - len(taken), most - sum(row.space.account == account for row in taken))

    def end_pauses(self) -> None:
        self._outages.clear()

    async def embed(
        self, embedder: Embedder, space: Space, texts: Sequence[str], seconds: float, waiting_event: str
    ) -> list[bytes] | None:
        """Returns a vector for each text, of the account of the space. None if the embedder fails or takes longer than
        `seconds`: then a pause begins. `waiting_event` is logged at the first failure, and then less and less
        often."""
        account, began = space.account, monotonic()
        try:
            async with asyncio.timeout(seconds):
                vectors = await embedder.embed(texts, bulk=True, space=space)
        except TimeoutError:
            if len(texts) > 1:
                self._max_texts[account] = len(texts) // 2
            away = EmbedderUnavailable(f"account {account}: no vectors within {seconds:g} s")
        except EmbedderUnavailable as error:
            away = error
        except Exception as error:  # Whatever is wrong with the texts of one account, the others get their vectors.
            log.exception("vectors_failed", account=account)
            away = EmbedderUnavailable(f"account {account}: {type(error).__name__}")
        else:
            self._outages.pop(account, None)
            if account in self._max_texts:
                self._max_texts[account] += 1
            return vectors
        finally:
            (self._late.add if monotonic() - began > LATE_SECONDS else self._late.discard)(account)
        outage = self._outages.setdefault(account, Outage())
        if outage.add(away):
            # For operators: the message has no text of users, and no key.
            log.warning(waiting_event, account=account, failures=outage.failures, error=outage.problem)
        return None

    async def make(self, embedder: Embedder, missing: Iterable[Missing]) -> bool:
        """Starts making the vectors, one task for each account; `missing` must hold no rows of accounts that
        `left_alone` names. Waits up to LATE_SECONDS for accounts whose endpoint is neither slow nor failing. Returns
        whether to call again now."""
        by_account: dict[str, list[Missing]] = {}
        for one in missing:
            by_account.setdefault(one.space.account, []).append(one)
        waited = []
        for account, rows in by_account.items():
            task = self._tasks[account] = asyncio.create_task(self._make(embedder, account, rows))
            task.add_done_callback(partial(self._end, account))
            if not self.is_slow(account):
                waited.append(task)
        if not waited:
            return False
        done, pending = await asyncio.wait(waited, timeout=LATE_SECONDS)
        # Rows that could not be written are read again at the pace of polls.
        return bool(pending) or any(task.result() != 0 for task in done)

    async def stop(self) -> None:
        """Gives up the vectors that are being made."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self, account: str, _: asyncio.Task[int | None]) -> None:
        del self._tasks[account]

    async def _make(self, embedder: Embedder, account: str, rows: list[Missing]) -> int | None:
        written = await self._write(embedder, account, rows)
        self._ended(rows, written)
        return written

    async def _write(self, embedder: Embedder, account: str, rows: list[Missing]) -> int | None:
        """Returns how many rows got vectors; None if the embedder is away."""
        vectors = await self.embed(
            embedder, rows[0].space, [row.text for row in rows], MAX_EMBED_SECONDS, self._waiting_event
        )
        if vectors is None:
            return None
        return await self._write_vectors(zip(rows, vectors, strict=True), embedder.model)
