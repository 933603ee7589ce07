"""Who is logged in. Keys stay in this process: a browser holds a signed id alone, and a restart logs everybody out."""

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from runekeep.client.connection.connection import Connection

MAX_LOGINS = 1000
MAX_AGE_SECONDS = 8 * 3600.0
MAX_IDLE_SECONDS = 3600.0

Scope = Literal["user", "admin"]


@dataclass(slots=True)
class Login:
    """One browser that has logged in. `connection` carries its credentials."""

    connection: Connection
    scope: Scope
    user: str
    account: str
    operator: bool
    """Whether it may see the pages for operators."""
    operator_connection: Connection
    """For AdminService, which may have an address of its own."""
    login_id: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    start: float = field(default_factory=time.monotonic)
    last_use: float = field(default_factory=time.monotonic)

    def ended(self, now: float) -> bool:
        return now - self.start > MAX_AGE_SECONDS or now - self.last_use > MAX_IDLE_SECONDS

    async def close(self) -> None:
        await self.connection.close()
        await self.operator_connection.close()


class Logins:
    """At most MAX_LOGINS; the one that was used least recently makes room."""

    def __init__(self) -> None:
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, login: Login) -> None:
        now = time.monotonic()
        for login_id in [known for known, old in self._logins.items() if old.ended(now)]:
            self.end(login_id)
        while len(self._logins) >= MAX_LOGINS:
            self.end(next(iter(self._logins)))
        self._logins[login.login_id] = login

    def find(self, login_id: str) -> Login | None:
        login = self._logins.get(login_id)
        if login is None:
            return None
        now = time.monotonic()
        if login.ended(now):
            self.end(login_id)
            return None
        login.last_use = now
        self._logins.move_to_end(login_id)
        return login

    def end(self, login_id: str) -> None:
        login = self._logins.pop(login_id, None)
        if login is not None:
            closing = asyncio.create_task(login.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for login_id in list(self._logins):
            self.end(login_id)
        await asyncio.gather(*self._closing)
