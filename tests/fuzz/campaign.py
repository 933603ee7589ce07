"""Sends requests to a server, many at a time, and looks at what comes back."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from protovalidate import Validator

from runekeep.v1 import session_service_pb2, session_service_pb2_grpc, space_service_pb2
from tests.fuzz.contract import Method, methods_of
from tests.fuzz.hostile import Metadata, garbled, with_hostile_metadata
from tests.fuzz.identities import ACCOUNTS, USERS, Identities, User
from tests.fuzz.names import Names
from tests.fuzz.report import Report
from tests.fuzz.sound import Sound
from tests.fuzz.world import Holder, furnish
from tests.support.callers import OF_THE_CLIENT
from tests.support.malformed import Malformed
from tests.support.server_process import ServerProcess

AT_ONCE = 12
SECONDS = 30.0
"""For a call that is to be answered; what waits for a revision or for the end of a task may use it up."""
PROBE_SECONDS = 5.0
"""Deadline of a small call during the campaign: a thousand times what such a call takes."""
HURRIED = (0.001, 0.01, 0.05)
STREAM_SECONDS = 0.4
"""Streams without an end of their own are left then."""
FURNISHED_EVERY = 400
"""Requests; much is deleted in between."""
_UNEXPLAINED = "(unexplained)"
"""At the end of what an error says that the server did not make."""
NEVER = ("INTERNAL", "UNKNOWN", "DATA_LOSS")
SPARED = {"DeleteUser": 0.9, "EraseData": 0.5, "DeleteSession": 0.5}
"""Shares of the requests that go in the name of somebody of whom nothing is there, so that things stay to be found."""
WAITING = ("min_revision", "WatchTask", "Work", "ImportSpace")


@dataclass(frozen=True, slots=True)
class Made:
    """What one call sends. `valid`: by the contract's rules, all of it."""

    payloads: Sequence[bytes]
    metadata: Metadata
    timeout: float
    valid: bool


class Campaign:
    """`requests` calls to a server whose metadata `identities` know, by a seed. The orders in which they meet differ
    from run to run; each request depends on the seed and on what was learned before it."""

    def __init__(self, server: ServerProcess, identities: Identities, seed: str, report: Report) -> None:
        self._server = server
        self._identities = identities
        self._seed = seed
        self._report = report
        self._validator = Validator()
        self._methods: list[Method] = []
        # Names of the users' own things, and of what workers and admins meet.
        words = {
            "peer_id": ("anna", "bob", "a b"),
            "query": ("tea", "hello", "Likes tea."),
            "memory_type": ("events", "preferences", "tools", "skills", "passages"),
            "memory_types": ("events", "preferences"),
            "tags": ("turn:t1", "artifact:turn.fingerprint.v1", "x"),
            "turn_id": ("t1", "t2"),
            "message_id": ("m1",),
            "keys": ("shop", "price"),
            "pattern": ("*", "**/*.md", "[a-z]+", "(", "tea", "(a+)+$"),
            "uri": ("viking://user/memories", "viking://user/sessions", "viking://user/memories/events"),
            "request_id": ("one", "two"),
        }
        self._names: dict[object, Names] = {user: Names(words) for user in (*USERS, "operators")}

    async def run(self, requests: int) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(self._server.address, options=options) as channel:
            self._methods = await asyncio.to_thread(methods_of, self._server.address)
            await self._furnish(channel)
            children = self._server.children()
            async with (
                self._worker_channel() as of_worker,
                Holder(of_worker, self._names["operators"], random.Random(f"{self._seed} holder")),
            ):
                numbers = iter(range(requests))
                probing = asyncio.create_task(self._probe())
                await asyncio.gather(*(self._send_some(channel, numbers) for _ in range(AT_ONCE)))
                probing.cancel()
                await asyncio.wait([probing])
            await self._look_after(channel, children)

    async def _probe(self) -> None:
        """Sends the calls of an ordinary user, who must never be kept waiting. Reports each call that fails."""
        request = session_service_pb2.ListSessionsRequest()
        metadata = self._identities.of_user((ACCOUNTS[0], "probe"))
        # On the campaign's connection, a probe would wait until the campaign's requests are sent.
        async with grpc.aio.insecure_channel(
            self._server.address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            sessions = session_service_pb2_grpc.SessionServiceStub(channel)
            while True:
                try:
                    await sessions.ListSessions(request, metadata=metadata, timeout=PROBE_SECONDS)
                except grpc.aio.AioRpcError as error:
                    self._report.fault(f"the probe was answered {error.code().name}: {error.details()}")
                self._report.probes += 1
                await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def _worker_channel(self) -> AsyncIterator[grpc.aio.Channel]:
        metadata = self._identities.worker

        class Signing(grpc.aio.UnaryUnaryClientInterceptor, grpc.aio.StreamStreamClientInterceptor):
            async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
                return await continuation(details._replace(metadata=metadata), request)

            async def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
                return await continuation(details._replace(metadata=metadata), requests)

        interceptors = [Signing()] if metadata else []
        async with grpc.aio.insecure_channel(self._server.address, interceptors=interceptors) as channel:
            yield channel

    async def _furnish(self, channel: grpc.aio.Channel) -> None:
        await asyncio.gather(*(furnish(channel, self._identities.of_user(user), self._names[user]) for user in USERS))

    async def _send_some(self, channel: grpc.aio.Channel, numbers: Any) -> None:
        for number in numbers:
            if number % FURNISHED_EVERY == FURNISHED_EVERY - 1:
                await self._furnish(channel)
            rng = random.Random(f"{self._seed} {number}")
            await self._send_one(channel, number, rng)

    async def _send_one(self, channel: grpc.aio.Channel, number: int, rng: random.Random) -> None:
        method = self._methods[number % len(self._methods)]
        user = rng.choice(USERS)
        if rng.random() < SPARED.get(method.name, 0.0) or (method.name == "ImportSpace" and rng.random() < 0.7):
            user = (user[0], f"nobody-{rng.randrange(20)}")
        names = self._names_for(method, user, rng)
        made = self._made(method, user, names, rng)
        try:
            code, answers, details = await self._answer(channel, method, made, rng)
        except ValueError:
            # Metadata that the client's own library refuses to send.
            self._report.unsent[str(method)] += 1
            return
        self._report.count(
            str(method),
            code,
            valid=made.valid and code not in ("UNAUTHENTICATED", "PERMISSION_DENIED"),
            empty=not made.payloads,
            # The client gave it up by itself, maybe before it was on the wire.
            seen=not (made.timeout in HURRIED and code == "DEADLINE_EXCEEDED" and _UNEXPLAINED in details),
        )
        self._judge(method, number, made, code, details)
        for answer in answers[:3]:
            names.learn(method.answer(answer))

    def _names_for(self, method: Method, user: User, rng: random.Random) -> Names:
        if method.service in ("ExtractorService", "AdminService"):
            return self._names["operators"]
        # Now and then somebody else's.
        return self._names[user] if user in self._names and rng.random() < 0.9 else self._names[rng.choice(USERS)]

    # What is sent

    def _made(self, method: Method, user: User, names: Names, rng: random.Random) -> Made:
        metadata = self._metadata(method, user)
        timeout = SECONDS
        count = rng.choice((0, 1, 2, 4, 8)) if method.client_streams else 1
        payloads = [self._payload(method, user, names, rng, at) for at in range(count)]
        if rng.random() < 0.08:
            metadata = with_hostile_metadata(rng, metadata)
        if rng.random() < 0.05:
            timeout = rng.choice(HURRIED)
        return Made(payloads, metadata, timeout, all(self._is_valid(method, one) for one in payloads))

    def _metadata(self, method: Method, user: User) -> Metadata:
        match method.service:
            case "ExtractorService":
                return self._identities.worker
            case "AdminService":
                return self._identities.admin
        return self._identities.of_user(user)

    def _payload(self, method: Method, user: User, names: Names, rng: random.Random, at: int) -> bytes:
        request = Sound(rng, names).message(method.input)
        if method.client_streams:
            self._order(method, request, rng, at)
        if rng.random() < 0.8 and (
            method.name == "DeleteUser" or (getattr(request, "user", "") and method.name == "EraseData")
        ):
            request.user = user[1]
        self._spare(method, request)
        kind = rng.random()
        if kind < 0.62:
            return bytes(request.SerializeToString())
        likely = tuple(filter(None, (names.of(field, rng) for field in ("session_id", "uri", "task_id", "turn_id"))))
        malformed = Malformed(f"{rng.random()}", likely or ("tea",))
        if kind < 0.77 and method.input.fields:
            request = malformed.damaged(request)
        elif kind < 0.87:
            request = malformed.message(method.input)
        else:
            return garbled(rng, bytes(request.SerializeToString()), method.input)
        self._spare(method, request)
        return bytes(request.SerializeToString())

    def _order(self, method: Method, request: Any, rng: random.Random, at: int) -> None:
        """Most streams begin as they should."""
        if rng.random() < 0.1:
            return
        if method.name == "Work" and at == 0:
            hello = request.hello
            hello.protocol_version, hello.worker_id, hello.incarnation_id = 1, "fuzz", uuid4().hex
            hello.kinds[:] = [1, 2, 3]
            hello.extractor.engine = "fuzz"
            del hello.resume[:]
        elif method.name == "ImportSpace" and at == 0:
            request.options.SetInParent()
        elif method.name == "ImportSpace":
            request.data = rng.choice((self._export, self._export[: rng.randrange(len(self._export) + 1)], b"x"))

    _export = b""

    def _spare(self, method: Method, request: Any) -> None:
        """What would end the campaign: limits of the accounts in whose names it is, and ends of its own keys."""
        if method.name == "UpdateAccountLimits" and request.account in ACCOUNTS:
            request.account = "limited"
        elif method.name in ("RotateApiKey", "RevokeApiKey") and request.key_id in self._identities_own():
            request.key_id = "aaaaaaaaaaaaaaaa"

    def _identities_own(self) -> set[str]:
        every = (self._identities.admin, self._identities.worker, *(self._identities.of_user(user) for user in USERS))
        return {str(value).split("_")[1] for metadata in every for _, value in metadata if "rk_" in str(value)}

    def _is_valid(self, method: Method, payload: bytes) -> bool:
        try:
            return not self._validator.collect_violations(method.request(payload), fail_fast=True)
        except DecodeError:
            return False

    # What comes back

    async def _answer(
        self, channel: grpc.aio.Channel, method: Method, made: Made, rng: random.Random
    ) -> tuple[str, list[bytes], str]:
        """Code, answers and details."""
        answers: list[bytes] = []
        kind = (method.client_streams, method.server_streams)
        call: Any
        try:
            match kind:
                case (False, False):
                    call = channel.unary_unary(method.path)(
                        made.payloads[0], metadata=made.metadata, timeout=made.timeout
                    )
                    answers.append(await call)
                case (True, False):
                    call = channel.stream_unary(method.path)(
                        iter(made.payloads), metadata=made.metadata, timeout=made.timeout
                    )
                    answers.append(await call)
                case _:
                    call = (
                        channel.stream_stream(method.path)(
                            _slowly(made.payloads), metadata=made.metadata, timeout=made.timeout
                        )
                        if method.client_streams
                        else channel.unary_stream(method.path)(
                            made.payloads[0], metadata=made.metadata, timeout=made.timeout
                        )
                    )
                    async with asyncio.timeout(STREAM_SECONDS):
                        async for answer in call:
                            answers.append(answer)
        except TimeoutError:
            call.cancel()
            return "LEFT", answers, ""
        except asyncio.CancelledError:
            # As which grpc.aio raises what the server calls CANCELLED.
            if not call.cancelled():
                raise
            return "CANCELLED", answers, "nobody here cancelled it"
        except grpc.aio.AioRpcError as error:
            if method.client_streams and error.details() == OF_THE_CLIENT:
                return "CUT", answers, ""
            return error.code().name, answers, f"{error.details()} {'' if _explained(error) else _UNEXPLAINED}"
        if method.name == "ExportSpace":
            self._keep_export(answers)
        return "OK", answers, ""

    def _keep_export(self, answers: Sequence[bytes]) -> None:
        whole = b"".join(space_service_pb2.ExportSpaceResponse.FromString(one).data for one in answers)
        if whole and len(whole) < 1024**2:
            self._export = whole

    def _judge(self, method: Method, number: int, made: Made, code: str, details: str) -> None:
        what = ""
        if code in NEVER:
            what = "is never to be answered"
        elif code == "UNAVAILABLE" and _UNEXPLAINED in details:
            what = "comes of a connection that broke"
        elif code == "CANCELLED" and made.timeout == SECONDS:
            what = "was asked for by nobody"
        elif code == "DEADLINE_EXCEEDED" and made.timeout == SECONDS and not self._may_wait(method):
            what = f"comes after {SECONDS:g} s"
        if what:
            shown = [self._shown(method, payload) for payload in made.payloads]
            self._report.fault(
                f"{method} (seed {self._seed!r}, number {number}): {code} {what}: {details}\n"
                f"metadata {made.metadata!r}\n{shown}"
            )

    def _may_wait(self, method: Method) -> bool:
        return method.name in WAITING or any(field.name in WAITING for field in method.input.fields)

    def _shown(self, method: Method, payload: bytes) -> str:
        message: Message
        try:
            message = method.request(payload)
        except DecodeError:
            return repr(payload[:200])
        return str(message)[:1000]

    async def _look_after(self, channel: grpc.aio.Channel, children: list[int]) -> None:
        """The server, and what it started, is there and serves."""
        health = health_pb2_grpc.HealthStub(channel)
        names = ["", *{f"runekeep.v1.{method.service}" for method in self._methods}]
        for name in names:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
            if answer.status != health_pb2.HealthCheckResponse.SERVING:
                self._report.fault(f"health of {name!r} is {answer.status}")
        if self._server.children() != children:
            self._report.fault(f"child processes were {children} and are {self._server.children()}")


async def _slowly(payloads: Sequence[bytes]) -> AsyncIterator[bytes]:
    """So that what the server says in between is not lost to an end that came too early."""
    for payload in payloads:
        yield payload
        await asyncio.sleep(0.01)


def _explained(error: grpc.aio.AioRpcError) -> bool:
    return any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
