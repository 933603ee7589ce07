"""Who sends: users of a few accounts, a worker, an admin, by the metadata that a server of a mode believes."""

from typing import Protocol

from tests.fuzz.hostile import Metadata

ACCOUNTS = ("acme", "other")
USERS = tuple((account, f"user-{number}") for account in ACCOUNTS for number in range(3))

User = tuple[str, str]


class Identities(Protocol):
    def of_user(self, user: User) -> Metadata: ...

    @property
    def worker(self) -> Metadata: ...

    @property
    def admin(self) -> Metadata: ...


class Development:
    """The server believes what it is told."""

    worker: Metadata = ()
    admin: Metadata = ()

    def of_user(self, user: User) -> Metadata:
        return (("x-runekeep-account", user[0]), ("x-runekeep-user", user[1]))


class Keys:
    """A key for each account, one for workers and one for admins."""

    def __init__(self, accounts: dict[str, str], worker: str, admin: str) -> None:
        self._accounts = accounts
        self.worker: Metadata = (("authorization", f"Bearer {worker}"),)
        self.admin: Metadata = (("authorization", f"Bearer {admin}"),)

    def of_user(self, user: User) -> Metadata:
        return (("authorization", f"Bearer {self._accounts[user[0]]}"), ("x-runekeep-user", user[1]))
