"""Accounts on this server: passes their limits from the store to `runekeep_server.rpc.limits`, and counts what they
store."""

import asyncio

import structlog

from runekeep.v1 import admin_service_pb2 as pb
from runekeep_server.protocol.pagination import next_token, open_page
from runekeep_server.rpc.limits import Limits
from runekeep_server.settings import LimitSettings
from runekeep_server.wire.basics import timestamp
from runekeep_storage.accounts import accounts
from runekeep_storage.accounts.accounts import OwnLimits
from runekeep_storage.accounts.usage_stats import Counting
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.database import Database
from runekeep_storage.errors import DatabaseDamaged, StoreUnavailable

log = structlog.get_logger(__name__)


class Accounts:
    """Reads limits at the start, after each change that this server makes, and every `count_seconds`, when it learns of
    changes by other servers. Counts stored data if no other server does."""

    def __init__(self, database: Database, blobs: Blobs, limits: Limits, settings: LimitSettings) -> None:
        self._database = database
        self._limits = limits
        self._seconds = settings.count_seconds
        self._stored_bytes = settings.account_stored_bytes
        self._counting = Counting(database, blobs, settings.count_seconds)
        self._reading: asyncio.Task[None] | None = None
        self._setting = asyncio.Lock()
        """Held from the read of the limits until they are set, so that no older read overwrites a newer one."""

    async def start(self) -> None:
        """Reads the limits and starts the background tasks. Raises StoreUnavailable."""
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
        """Reads the limits from the store. Raises StoreUnavailable; then the limits of the last read stay."""
        async with self._setting:
            self._limits.set_accounts(*await self._stored_limits())

    async def _stored_limits(self) -> tuple[dict[str, OwnLimits], frozenset[str]]:
        """Returns the accounts with their own limits, and the accounts at their quota."""
        own: dict[str, OwnLimits] = {}
        last = ""
        while some := await self._database.read_global(accounts.limited, last):
            own.update(some)
            last = some[-1][0]
        full: set[str] = set()
        last = ""
        while self._stored_bytes or own:
            names = await self._database.read_global(accounts.full, last, self._stored_bytes)
            if not names:
                break
            full.update(names)
            last = names[-1]
        return own, frozenset(full)

    async def list_accounts(self, request: pb.ListAccountsRequest) -> pb.ListAccountsResponse:
        page = open_page(request, (str,))
        after = str(page.after[0]) if page.after else ""
        found = await self._database.read_global(accounts.page, after, page.size + 1)
        answer = pb.ListAccountsResponse(accounts=[_account(one) for one in found[: page.size]])
        if len(found) > page.size:
            answer.next_page_token = next_token(request, (found[page.size - 1].name,))
        return answer

    async def update_limits(self, request: pb.UpdateAccountLimitsRequest) -> pb.UpdateAccountLimitsResponse:
        wanted = request.limits
        said = {field.name: value for field, value in wanted.ListFields()}
        limits = OwnLimits(**{name: said.get(name) for name in accounts.LIMITS})
        account = await self._database.write_global(accounts.set_limits, request.account, limits)
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
                # The limits of the last read stay.
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
