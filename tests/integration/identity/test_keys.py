"""Whoever has no good key gets nowhere, and whoever has one gets no further than it reaches; on both stores."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from runekeep.v1 import admin_service_pb2 as pb
from runekeep.v1 import session_service_pb2, session_service_pb2_grpc, task_service_pb2
from tests.support.callers import Caller, Failure, failure, said, unique
from tests.support.keys import ADMIN_KEY, KEYED, WORKER_KEY, Metadata, Operator, bearer, in_store, sending
from tests.support.server_process import ServerProcess
from tests.support.tenant_attempts import OF_ACCOUNT
from tests.support.worker import Worker

pytestmark = pytest.mark.postgres_long

DENIED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
AUDIENCES = {"ExtractorService": "workers", "AdminService": "admins"}
MAY = {"user": "users", "account": "users", "admin": "admins", "worker": "workers"}
NOT_VALID = "The API key is not valid. Call with one that is; operators make them with `runekeep admin key create`."


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return {**KEYED, **either_store}


@pytest.fixture
def operator(channel: grpc.aio.Channel) -> Operator:
    return Operator(channel)


@dataclass(frozen=True)
class Rpc:
    """A method that the running server has."""

    path: str
    method: MethodDescriptor

    @property
    def audience(self) -> str:
        return AUDIENCES.get(self.path.split("/")[1].rsplit(".", 1)[1], "users")

    async def failure(self, channel: grpc.aio.Channel, metadata: Metadata) -> Failure | None:
        """How a call ends whose request is empty."""
        kinds = {False: "unary", True: "stream"}
        kind = f"{kinds[self.method.client_streaming]}_{kinds[self.method.server_streaming]}"
        open_call = getattr(channel, kind)(self.path)
        call = open_call(no_requests() if self.method.client_streaming else b"", metadata=metadata, timeout=20)
        try:
            if self.method.server_streaming:
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return Failure(error)
        return None


async def no_requests() -> AsyncIterator[bytes]:
    for request in ():
        yield request


@pytest.fixture(scope="module")
def rpcs(server: ServerProcess) -> list[Rpc]:
    """All of them, which needs no key."""
    with grpc.insecure_channel(server.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        names = [name for name in database.get_services() if name.startswith("runekeep.")]
        found = [
            Rpc(f"/{name}/{method.name}", method) for name in names for method in pool.FindServiceByName(name).methods
        ]
    assert len(names) == 9 and len(found) > 50
    return found


async def bad_credentials(
    operator: Operator, server: ServerProcess, settings: dict[str, str]
) -> Mapping[str, Metadata]:
    """Credentials that are none. Those in capitals are all refused in the same words."""
    good = (await operator.make(pb.SCOPE_USER, "acme", "ada")).secret
    other = (await operator.make(pb.SCOPE_USER, "acme", "bob")).secret
    revoked = await operator.make(pb.SCOPE_USER, "acme", "ada")
    await operator.revoke(revoked.key.key_id)
    rotated = await operator.make(pb.SCOPE_USER, "acme", "ada")
    await operator.rotate(rotated.key.key_id)
    expired = await operator.make(pb.SCOPE_USER, "acme", "ada", lifetime={"seconds": 60})
    # Before the server has read it.
    sql = f"UPDATE api_keys SET expires_at = created_at WHERE key_id = '{expired.key.key_id}'"
    await in_store(settings, server.data_dir, sql)
    key_id, secret = good[3:19], good[20:]
    return {
        "no key": (),
        "names alone": (("x-runekeep-account", "acme"), ("x-runekeep-user", "ada")),
        "a key in another header": (("x-api-key", good), ("x-runekeep-api-key", good)),
        "another scheme": (("authorization", f"Basic {good}"),),
        "a key without its scheme": (("authorization", good),),
        "a second key": (*bearer(good), *bearer(other)),
        "EMPTY": bearer(""),
        "WRONG": bearer(f"rk_{key_id}_{'A' * 43}"),
        "UNKNOWN": bearer(f"rk_{'a' * 16}_{secret}"),
        "OF ANOTHER KEY": bearer(f"rk_{key_id}_{other[20:]}"),
        "TRUNCATED": bearer(good[:-1]),
        "LONGER": bearer(f"{good}A"),
        "ALTERED": bearer(good[:-1] + ("A" if good[-1] != "A" else "E")),
        "IN CAPITALS": bearer(good.upper()),
        "ID ALONE": bearer(f"rk_{key_id}"),
        "REVOKED": bearer(revoked.secret),
        "ROTATED": bearer(rotated.secret),
        "EXPIRED": bearer(expired.secret),
        "TRUNCATED OF THE SETTINGS": bearer(ADMIN_KEY[:-1]),
        "OF ALL DIGITS": bearer("0" * 64),
    }


async def test_no_rpc_is_reached_with_bad_credentials(
    rpcs: list[Rpc],
    operator: Operator,
    channel: grpc.aio.Channel,
    server: ServerProcess,
    server_settings: dict[str, str],
) -> None:
    bad = await bad_credentials(operator, server, server_settings)
    for rpc in rpcs:
        for what, metadata in bad.items():
            failed = await rpc.failure(channel, metadata)
            assert failed is not None, f"{rpc.path} with {what}"
            assert failed.seen == ("UNAUTHENTICATED", "ACCESS_DENIED"), f"{rpc.path} with {what}: {failed}"
            assert (failed.message == NOT_VALID) == what.isupper(), f"{rpc.path} with {what}: {failed.message}"


async def test_a_key_reaches_the_services_of_its_scope_and_no_others(
    rpcs: list[Rpc], operator: Operator, channel: grpc.aio.Channel
) -> None:
    account, user = unique("account"), unique("user")
    keys = {
        "user": [bearer((await operator.make(pb.SCOPE_USER, account, user)).secret)],
        "account": [
            (*bearer((await operator.make(pb.SCOPE_ACCOUNT, account)).secret), ("x-runekeep-user", user)),
        ],
        "admin": [bearer((await operator.make(pb.SCOPE_ADMIN)).secret), bearer(ADMIN_KEY)],
        "worker": [bearer((await operator.make(pb.SCOPE_WORKER)).secret), bearer(WORKER_KEY)],
    }
    reached = 0
    for rpc in rpcs:
        for scope, credentials in keys.items():
            for metadata in credentials:
                # To name a user adds nothing to a key that is no user's.
                for more in ((), (("x-runekeep-account", account), ("x-runekeep-user", user))):
                    failed = await rpc.failure(channel, tuple({*metadata, *more}))
                    if scope == "user" and rpc.path.rpartition("/")[2] in OF_ACCOUNT:
                        # An empty request of CopyUser lacks what it needs.
                        assert failed is not None and failed.seen[1] in ("ACCESS_DENIED", "FIELD_INVALID"), rpc.path
                    elif MAY[scope] == rpc.audience:
                        assert failed is None or failed.code not in DENIED, f"{rpc.path} for {scope}: {failed}"
                        assert failed is None or failed.code is not grpc.StatusCode.INTERNAL
                        reached += 1
                    else:
                        assert failed is not None, f"{rpc.path} for {scope}"
                        assert failed.seen == ("PERMISSION_DENIED", "ACCESS_DENIED"), f"{rpc.path} for {scope}"
    assert reached > len(rpcs)


async def test_a_user_key_is_for_that_user_whatever_the_metadata_say(
    operator: Operator, channel: grpc.aio.Channel
) -> None:
    account = unique("account")
    ada = bearer((await operator.make(pb.SCOPE_USER, account, "ada")).secret)
    created = await sessions(channel, ada)
    assert created.startswith("viking://user/ada/")
    for more in ((("x-runekeep-user", "ada"),), (("x-runekeep-account", account), ("x-runekeep-user", "ada"))):
        assert (await sessions(channel, (*ada, *more))).startswith("viking://user/ada/")
    for other in (("x-runekeep-user", "bob"), ("x-runekeep-account", "else"), ("x-runekeep-account", "default")):
        failed = await failure(sessions(channel, (*ada, other)))
        assert failed.seen == ("PERMISSION_DENIED", "ACCESS_DENIED")
        # Nothing of whose key it is.
        assert account not in failed.message and "ada" not in failed.message.replace("metadata", "")


async def test_an_account_key_acts_for_users_of_its_account_alone(
    operator: Operator, channel: grpc.aio.Channel
) -> None:
    account, other = unique("account"), unique("account")
    key = bearer((await operator.make(pb.SCOPE_ACCOUNT, account)).secret)
    for user in ("ada", "bob"):
        uri = await sessions(channel, (*key, ("x-runekeep-user", user)))
        assert uri.startswith(f"viking://user/{user}/")
    nobody = await failure(sessions(channel, key))
    assert nobody.seen == ("UNAUTHENTICATED", "ACCESS_DENIED") and "x-runekeep-user" in nobody.message
    for more in (
        (("x-runekeep-user", "ada"), ("x-runekeep-account", other)),
        (("x-runekeep-user", "ada"), ("x-runekeep-account", account), ("x-runekeep-account", other)),
        (("x-runekeep-user", "ada"), ("x-runekeep-user", "bob")),
        (("x-runekeep-user", "../bob"),),
        (("x-runekeep-user", ""),),
    ):
        failed = await failure(sessions(channel, (*key, *more)))
        assert failed.code in DENIED and failed.reason == "ACCESS_DENIED", failed


async def sessions(channel: grpc.aio.Channel, metadata: Metadata) -> str:
    """URI of a session that the caller makes."""
    stub = session_service_pb2_grpc.SessionServiceStub(channel)
    request = session_service_pb2.CreateSessionRequest(session_id=unique("s"))
    return str((await stub.CreateSession(request, metadata=metadata)).session.uri)


async def test_a_rotated_key_has_two_secrets_for_a_while(operator: Operator, channel: grpc.aio.Channel) -> None:
    made = await operator.make(pb.SCOPE_USER, unique("account"), "ada")
    key_id = made.key.key_id
    await sessions(channel, bearer(made.secret))
    second = await operator.rotate(key_id, grace={"seconds": 3600})
    assert second.key.previous_expire_time.seconds - second.key.rotate_time.seconds == 3600
    for secret in (made.secret, second.secret):
        await sessions(channel, bearer(secret))
    # The grace is for one secret: that before the last.
    third = await operator.rotate(key_id, grace={"seconds": 3600})
    for secret in (second.secret, third.secret):
        await sessions(channel, bearer(secret))
    assert (await failure(sessions(channel, bearer(made.secret)))).message == NOT_VALID
    # And over at once when nothing is said.
    last = await operator.rotate(key_id)
    assert not last.key.HasField("previous_expire_time")
    await sessions(channel, bearer(last.secret))
    for secret in (made.secret, second.secret, third.secret):
        assert (await failure(sessions(channel, bearer(secret)))).message == NOT_VALID
    short = await operator.rotate(key_id, grace={"nanos": 1000})
    assert (await failure(sessions(channel, bearer(last.secret)))).message == NOT_VALID
    await operator.revoke(key_id)
    assert (await failure(sessions(channel, bearer(short.secret)))).message == NOT_VALID
    assert (await failure(operator.rotate(key_id))).code is grpc.StatusCode.NOT_FOUND


async def test_to_revoke_a_key_ends_the_streams_that_it_opened(
    server: ServerProcess, operator: Operator, channel: grpc.aio.Channel
) -> None:
    made = await operator.make(pb.SCOPE_USER, "acme", "ada")
    worker = await operator.make(pb.SCOPE_WORKER)
    async with sending(server.address, made.secret) as own, sending(server.address, worker.secret) as workers:
        caller = Caller(own, "ada", "acme")
        task_id = (await caller.committed(said("hello"))).task_id
        watch = caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task_id))
        async with aclosing(aiter(watch)) as updates:
            await anext(updates)
            async with Worker(workers) as working:
                await operator.revoke(worker.key.key_id)
                ended = await working.end()
            assert ended is not None and ended.seen == ("UNAUTHENTICATED", "ACCESS_DENIED")
            await operator.revoke(made.key.key_id)
            failed = await failure(drained(updates))
        assert failed.seen == ("UNAUTHENTICATED", "ACCESS_DENIED") and failed.message == NOT_VALID
    # The job is there for somebody else's worker.
    async with sending(server.address, WORKER_KEY) as workers, Worker(workers) as working:
        assert (await working.take()).task_id == task_id


async def drained(updates: Any) -> None:
    async for _ in updates:
        pass


async def test_keys_are_listed_without_their_secrets(operator: Operator) -> None:
    account = unique("account")
    made = [await operator.make(pb.SCOPE_USER, account, f"user-{number}", label="for a test") for number in range(5)]
    await operator.revoke(made[2].key.key_id)
    first = await operator.keys(account=account, page_size=3)
    rest = await operator.keys(account=account, page_size=3, page_token=first.next_page_token)
    assert not rest.next_page_token
    listed = [key.key_id for key in (*first.keys, *rest.keys)]
    assert listed == [one.key.key_id for one in reversed(made) if one is not made[2]]
    every = await operator.keys(account=account, include_ended=True)
    assert [key.key_id for key in every.keys if key.HasField("revoke_time")] == [made[2].key.key_id]
    text = str(every)
    assert "for a test" in text and not any(one.secret[20:] in text for one in made)


async def test_a_repeated_request_makes_no_second_key(operator: Operator) -> None:
    account, request_id = unique("account"), unique("r")
    made = await operator.make(pb.SCOPE_ACCOUNT, account, request_id=request_id)
    again = await failure(operator.make(pb.SCOPE_ACCOUNT, account, request_id=request_id))
    assert again.seen == ("ALREADY_EXISTS", "RESOURCE_EXISTS")
    assert again.resource == ("API key", made.key.key_id)
    assert len((await operator.keys(account=account)).keys) == 1


@pytest.mark.parametrize(
    ("scope", "names", "field"),
    [
        (pb.SCOPE_USER, {"account": "acme"}, "user"),
        (pb.SCOPE_USER, {"user": "ada"}, "account"),
        (pb.SCOPE_USER, {"account": "acme", "user": "sessions"}, "user"),
        (pb.SCOPE_ACCOUNT, {}, "account"),
        (pb.SCOPE_ACCOUNT, {"account": "acme", "user": "ada"}, "user"),
        (pb.SCOPE_ADMIN, {"account": "acme"}, "account"),
        (pb.SCOPE_WORKER, {"user": "ada"}, "user"),
        (pb.SCOPE_UNSPECIFIED, {}, "scope"),
        (77, {}, "scope"),
    ],
)
async def test_a_key_names_whom_its_scope_needs(
    operator: Operator, scope: Any, names: dict[str, str], field: str
) -> None:
    failed = await failure(operator.make(scope, **names))
    assert failed.code is grpc.StatusCode.INVALID_ARGUMENT and failed.fields == [field]


async def test_health_and_reflection_ask_for_no_key(channel: grpc.aio.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service="runekeep.v1.AdminService"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING

    async def asked() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked())
    listed = [one async for one in answers]
    assert "runekeep.v1.AdminService" in [service.name for service in listed[0].list_services_response.service]
