"""Accounts on this server: limits, read from the store and given to `server.limits`, and what they have stored."""

import asyncio

import structlog

from runekeep.v1 import admin_service_pb2 as pb
from server.limits import Limits
from server.pages import next_token, open_page
from server.settings import LimitSettings
from server.wire.basics import timestamp
from storage import accounts
from storage.accounts import OwnLimits
from storage.blobs import Blobs
from storage.counting import Counting
from storage.database import Database
from storage.errors import DatabaseDamaged, StoreUnavailable

log = structlog.get_logger(__name__)


class Accounts:
    """Reads limits at the start, at each change that this server makes, and every `count_seconds`, which is when it
    learns of changes that others made; and counts what is stored, when no other server does."""

    def __init__(self, database: Database, blobs: Blobs, limits: Limits, settings: LimitSettings) -> None:
        self._database = database
        self._limits = limits
        self._seconds = settings.count_seconds
        self._stored_bytes = settings.account_stored_bytes
        self._counting = Counting(database, blobs, settings.count_seconds)
        self._reading: asyncio.Task[None] | None = None
        self._setting = asyncio.Lock()
        """From a look at the store to what follows of it, so that no older look overwrites a newer one."""

    async def start(self) -> None:
        """Raises StoreUnavailable."""
        try:
            await self.read_limits()
        except DatabaseDamaged as error:
            # The store takes no writes, but reads must still work for a rescue. The limits of the settings apply.
            log.warning("limits_not_read", error=str(error))
        self._reading = asyncio.create_task(self._read_forever())
        self._counting.start()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._counting.stop()

    async def read_limits(self) -> None:
        """Raises StoreUnavailable; then those hold that were read before."""
        async with self._setting:
            self._limits.set_accounts(*await self._stored_limits())

    async def _stored_limits(self) -> tuple[dict[str, OwnLimits], frozenset[str]]:
        """The accounts with limits of their own, and those that are full."""
        own: dict[str, OwnLimits] = {}
        last = ""
        while some := await self._database.read(accounts.limited, last):
            own.update(some)
            last = some[-1][0]
        full: set[str] = set()
        last = ""
        while self._stored_bytes or own:
            names = await self._database.read(accounts.full, last, self._stored_bytes)
            if not names:
                break
            full.update(names)
            last = names[-1]
        return own, frozenset(full)

    async def list_accounts(self, request: pb.ListAccountsRequest) -> pb.ListAccountsResponse:
        page = open_page(request, (str,))
        after = str(page.after[0]) if page.after else ""
        found = await self._database.read(accounts.page, after, page.size + 1)
        answer = pb.ListAccountsResponse(accounts=[_account(one) for one in found[: page.size]])
        if len(found) > page.size:
            answer.next_page_token = next_token(request, (found[page.size - 1].name,))
        return answer

    async def update_limits(self, request: pb.UpdateAccountLimitsRequest) -> pb.UpdateAccountLimitsResponse:
        wanted = request.limits
        said = {field.name: value for field, value in wanted.ListFields()}
        limits = OwnLimits(**{name: said.get(name) for name in accounts.LIMITS})
        account = await self._database.write(accounts.set_limits, request.account, limits)
        await self.read_limits()
        return pb.UpdateAccountLimitsResponse(account=_account(account))

    async def _read_forever(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self.read_limits()
            except StoreUnavailable as error:
                log.warning("limits_not_read", error=str(error))
            except Exception:
                # Those that were read before go on.
                log.exception("limits_not_read")


def _account(account: accounts.Account) -> pb.Account:
    usage = account.usage
    told = pb.AccountUsage(
        users=usage.users,
        sessions=usage.sessions,
        messages=usage.messages,
        memories=usage.memories,
        stored_bytes=usage.stored_bytes,
        count_time=timestamp(usage.counted_at),
    )
    own = {name: value for name in accounts.LIMITS if (value := getattr(account.limits, name)) is not None}
    return pb.Account(account=account.name, limits=pb.AccountLimits(**own), usage=told)
