"""Identities of attackers and victims in the modes `keys` and `mesh`. Both modes use TLS with new certificates."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import grpc

from runekeep.v1 import admin_service_pb2
from tests.support.callers import Caller
from tests.support.certificates import CLIENT, LOCAL, SERVER, Authority, Pair
from tests.support.keys import ADMIN_KEY, KEYED, Operator

Mode = Literal["keys", "mesh"]
User = tuple[str, str]

PROBE: User = ("quiet", "probe")
GREEDY: User = ("greedy", "mallory")
VICTIM: User = ("victim", "alice")
COLLEAGUE: User = ("victim", "bob")
STRANGERS: tuple[User, ...] = (("victim", "eve"), ("other", "alice"), ("other", "carol"))
"""Another user of the victim's account, the same name in another account, and another one there."""
COMMITTERS: tuple[User, ...] = tuple(("crowd", f"user-{number}") for number in range(8))
USERS = (PROBE, GREEDY, VICTIM, COLLEAGUE, *STRANGERS, *COMMITTERS)
WORKERS = {
    "honest": ("victim",),
    "thief": (),
    "greedy": ("greedy",),
    "idle": ("crowd",),
    "diligent": ("crowd",),
}
"""The accounts whose jobs each worker may get; none named: all."""
NOBODY = "nobody.attack.test"
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Otherwise channels of one process share a connection.
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a connection: PEM texts and an API key, each empty if there is none."""

    authority: str
    certificate: str = ""
    key: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)

    def channel(self, address: str) -> grpc.aio.Channel:
        pair = (self.key.encode(), self.certificate.encode()) if self.certificate else (None, None)
        credentials = grpc.ssl_channel_credentials(self.authority.encode(), *pair)
        if self.api_key:
            # Sends it as `authorization: Bearer ...`.
            sent = grpc.access_token_call_credentials(self.api_key)
            credentials = grpc.composite_channel_credentials(credentials, sent)
        return grpc.aio.secure_channel(address, credentials, options=OPTIONS)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Identities:
    """`settings`: of the server that knows them. Call `enrol` once it runs."""

    def __init__(self, mode: Mode, directory: Path) -> None:
        self.mode = mode
        self.authority = Authority("attack")
        certificate, key = self.authority.issue(*LOCAL, usages=(SERVER,)).write(directory, "server")
        self.settings = {"RUNEKEEP_TLS__CERTIFICATE": str(certificate), "RUNEKEEP_TLS__KEY": str(key)}
        if mode == "mesh":
            self.settings |= {
                "RUNEKEEP_IDENTITY_MODE": "mesh",
                "RUNEKEEP_TLS__CLIENT_CA": str(self.authority.write(directory)),
                "RUNEKEEP_MESH__RULES": json.dumps(_rules()),
            }
        else:
            self.settings |= {name: value for name, value in KEYED.items() if name != "RUNEKEEP_REFLECTION"}
        self._users: dict[User, Credentials] = {}
        self._workers: dict[str, Credentials] = {}

    async def enrol(self, address: str) -> None:
        """Makes keys or certificates for all users and workers."""
        if self.mode == "mesh":
            self._users = {user: self.certified(_user_name(user)) for user in USERS}
            self._workers = {name: self.certified(_worker_name(name)) for name in WORKERS}
            return
        async with self.anonymous.channel(address) as channel:
            operator = Operator(channel, ADMIN_KEY)
            for user in USERS:
                made = await operator.make(admin_service_pb2.SCOPE_USER, *user)
                self._users[user] = self.keyed(made.secret)
            for name, accounts in WORKERS.items():
                made = await operator.make(admin_service_pb2.SCOPE_WORKER, accounts=accounts)
                self._workers[name] = self.keyed(made.secret)

    def user(self, user: User) -> Credentials:
        return self._users[user]

    def worker(self, name: str) -> Credentials:
        return self._workers[name]

    @property
    def anonymous(self) -> Credentials:
        """Credentials of a stranger. In the mode mesh they are a certificate without a rule, because a caller without a
        certificate gets no connection."""
        return self.certified(NOBODY) if self.mode == "mesh" else self.keyed("")

    def keyed(self, api_key: str) -> Credentials:
        return Credentials(self.authority.certificate.decode(), api_key=api_key)

    def certified(self, *names: str, by: Authority | None = None, **fields: object) -> Credentials:
        return self.with_pair((by or self.authority).issue(*names, usages=(CLIENT,), **fields))  # type: ignore[arg-type]  # by name

    def with_pair(self, pair: Pair) -> Credentials:
        return Credentials(self.authority.certificate.decode(), pair.certificate.decode(), pair.key.decode())


def caller(channel: grpc.aio.Channel, user: User) -> Caller:
    account, name = user
    return Caller(channel, name, account)


def _user_name(user: User) -> str:
    return "spiffe://attack.test/{}/{}".format(*user)


def _worker_name(name: str) -> str:
    return f"{name}.workers.attack.test"


def _rules() -> Sequence[dict[str, object]]:
    users = [{"certificate": _user_name(user), "scope": "user", "account": user[0], "user": user[1]} for user in USERS]
    workers: list[dict[str, object]] = [
        {"certificate": _worker_name(name), "scope": "worker", **({"accounts": accounts} if accounts else {})}
        for name, accounts in WORKERS.items()
    ]
    return [*users, *workers]
