"""Attacks of strangers and of callers. Each is a function that makes the attack once; the campaign may repeat it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf import descriptor_pool

from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2
from runekeep_server.rpc.methods import METHODS
from tests.attack.arena import OPEN, Arena
from tests.attack.identities import COLLEAGUE, GREEDY, STRANGERS, VICTIM, Credentials
from tests.attack.test_before_authentication import HUGE, SERVICE, reflect, watch
from tests.attack.test_bytes_in_flight import ADD
from tests.attack.test_shared_slots import SLOW, fill_for_greps, imported
from tests.integration.identity.test_keys import Rpc, bad_credentials
from tests.support.callers import Caller, said, unique
from tests.support.certificates import Authority, self_signed
from tests.support.changes import put
from tests.support.keys import Metadata, Operator
from tests.support.raw_peers import RawPeer
from tests.support.tenant_attempts import try_everything, victimized

WRITE = "/runekeep.v1.MemoryService/WriteMemories"
MEGABYTE = 1024 * 1024
HOLD_SECONDS = 5.0
"""Time for which an attack of full size keeps its connections and calls open."""

Attack = Callable[[Arena], Awaitable[None]]


async def watched_health(arena: Arena) -> None:
    """Health.Watch with huge names, compressed and plain."""
    channel = await arena.anonymous()
    await arena.all(watch(channel, HUGE, grpc.Compression.Gzip) for _ in range(arena.many(100)))
    await arena.all(watch(channel, HUGE) for _ in range(arena.many(10)))
    await arena.all(watch(channel, SERVICE + "x" * 200) for _ in range(arena.many(100)))


async def reflected_symbols(arena: Arena) -> None:
    """Reflection with huge symbols, compressed and plain."""
    channel = await arena.anonymous()
    await arena.all(reflect(channel, HUGE, grpc.Compression.Gzip) for _ in range(arena.many(100)))
    await arena.all(reflect(channel, HUGE) for _ in range(arena.many(10)))


async def idle_connections(arena: Arena) -> None:
    """Connections that say nothing, while somebody else connects."""
    with ExitStack() as peers:

        def connect() -> list[RawPeer]:
            return [peers.enter_context(RawPeer(arena.address)) for _ in range(arena.many(400))]

        connected = await asyncio.to_thread(connect)
        arena.count(OPEN, len(connected))
        for peer in connected:
            # The beginning of what a client says first, so that the server waits for the rest.
            peer.say(b"PRI * HTTP")
        await arena.others_are_served(COLLEAGUE)
        await asyncio.sleep(HOLD_SECONDS * arena.size)


async def compressed_flood(arena: Arena) -> None:
    """Sixty compressed calls of 16 MB, with and without credentials."""
    greedy = await arena.caller(GREEDY)
    raw = _large_request(await greedy.session(), 15)
    stranger = await arena.anonymous()
    calls = [_post(greedy.channel, ADD, raw, greedy, grpc.Compression.Gzip) for _ in range(arena.many(60))]
    calls += [_post(stranger, ADD, raw, None, grpc.Compression.Gzip) for _ in range(arena.many(20))]
    await arena.all(calls)


async def large_flood(arena: Arena) -> None:
    """Plain calls of 15 MB at once, which are too large, and as many bytes in calls that are not."""
    greedy = await arena.caller(GREEDY)
    session = await greedy.session()
    too_large, large = _large_request(session, 15), _large_request(session, 3)
    try:
        await arena.all(_post(greedy.channel, ADD, too_large, greedy) for _ in range(arena.many(40)))
        await arena.all(_post(greedy.channel, ADD, large, greedy) for _ in range(arena.many(200)))
    finally:
        await _forget(greedy, session)


async def stalled_requests(arena: Arena) -> None:
    """Calls whose requests never arrive."""
    greedy = await arena.caller(GREEDY)
    calls: list[Any] = [
        greedy.channel.stream_unary(ADD)(metadata=_names(greedy), timeout=600) for _ in range(arena.many(40))
    ]
    arena.count(OPEN, len(calls))
    await asyncio.sleep(HOLD_SECONDS * arena.size)
    await arena.others_are_served(COLLEAGUE)
    for call in calls:
        call.cancel()


async def null_values(arena: Arena) -> None:
    """A tool input of 3.5 million nulls, and as many as a request can hold, compressed and plain."""
    greedy = await arena.caller(GREEDY)
    session = await greedy.session()
    try:
        for count in (3_500_000, 1_000_000):
            raw = _nulls(session, arena.many(count))
            await arena.call(_post(greedy.channel, ADD, raw, greedy, grpc.Compression.Gzip))
            await arena.call(_post(greedy.channel, ADD, raw, greedy))
    finally:
        await _forget(greedy, session)


async def deep_values(arena: Arena) -> None:
    """Tool inputs that are lists in lists, as deep as a request can be."""
    greedy = await arena.caller(GREEDY)
    session = await greedy.session()
    calls = []
    for depth in (20, 90, 1000, arena.many(10_000)):
        value = b""
        for _ in range(depth):
            value = _nested(_LIST_VALUE, _nested(_VALUES, value))
        calls.append(_post(greedy.channel, ADD, _with_input(session, value), greedy))
    try:
        await arena.all(calls)
    finally:
        await _forget(greedy, session)


async def scanned_pins(arena: Arena) -> None:
    """Megabytes of the beginning of a secret, in a memory and in the names of one: more than a request may have, more
    than a memory, and as much as a memory."""
    greedy = await arena.caller(GREEDY)
    for megabytes in (15, 3.5, 1.8):
        text = "PIN for " * (arena.many(int(megabytes * MEGABYTE)) // 8)
        for change in (put("preferences", topic="Tea", content=text), put("preferences", topic=text, content="Green.")):
            request = memory_service_pb2.WriteMemoriesRequest(changes=[change])
            await arena.call(_post(greedy.channel, WRITE, request.SerializeToString(), greedy))


async def slow_greps(arena: Arena) -> None:
    """Sixty regular expressions that take long."""
    greedy = await arena.caller(GREEDY)
    await fill_for_greps(greedy)
    slow = memory_service_pb2.GrepDocumentsRequest(pattern=SLOW, uri=greedy.uri(""))
    flood = arena.all(greedy.memories.GrepDocuments(slow, timeout=600) for _ in range(arena.many(60)))
    calls = asyncio.create_task(flood)
    try:
        await asyncio.wait([calls], timeout=3 * HOLD_SECONDS * arena.size)
        await arena.others_are_served(COLLEAGUE)
        await _others_grep(arena)
    finally:
        calls.cancel()
        await asyncio.wait([calls])


async def _others_grep(arena: Arena) -> None:
    """Somebody else gets an answer to a quick expression."""
    other = await arena.caller(COLLEAGUE)
    await other.add(await other.session(), said("the kettle is on"))
    quick = memory_service_pb2.GrepDocumentsRequest(pattern="kettle", uri=other.uri(""))
    try:
        found = await other.memories.GrepDocuments(quick, timeout=30)
    except grpc.aio.AioRpcError as error:
        arena.failures.append(f"another account's grep failed: {error.code().name}")
    else:
        if not found.matches:
            arena.failures.append("another account's grep found nothing")


async def idle_imports(arena: Arena) -> None:
    """Imports that send nothing, while another account exports."""
    greedy, other = await arena.caller(GREEDY), await arena.caller(COLLEAGUE)
    idle = [imported(greedy, [], end=False) for _ in range(arena.many(20))]
    arena.count(OPEN, len(idle))
    try:
        await asyncio.sleep(HOLD_SECONDS * arena.size)
        # An archive that is none: its refusal shows that the import had its turn.
        await imported(other, [b"no archive"])
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
            arena.failures.append(f"another account's import had no turn: {error.code().name}")
    finally:
        for one in idle:
            one.cancel()


async def bad_identities(arena: Arena) -> None:
    """Every method with credentials that are none: altered, revoked, expired, of another authority."""
    known = await arena.caller(VICTIM)
    pool = descriptor_pool.Default()
    rpcs = [Rpc(path, pool.FindMethodByName(path[1:].replace("/", "."))) for path in METHODS]
    claims: Metadata = (("x-runekeep-account", known.account), ("x-runekeep-user", known.user))
    for what, credentials, metadata in await _credentials_that_are_none(arena):
        channel = await arena.channel(credentials)
        for rpc in rpcs:
            code = await _refusal(rpc, channel, (*metadata, *claims) if metadata else claims)
            arena.count(code)
            if code not in ("UNAUTHENTICATED", "UNAVAILABLE"):
                arena.breaches.append(f"{rpc.path} answered {code} to {what}")


async def _refusal(rpc: Rpc, channel: grpc.aio.Channel, metadata: Metadata) -> str:
    try:
        failed = await rpc.failure(channel, metadata)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        # How gRPC's client ends a stream of requests that gets no connection.
        return "UNAVAILABLE"
    return failed.code.name if failed else "OK"


async def _credentials_that_are_none(arena: Arena) -> list[tuple[str, Credentials, Metadata]]:
    identities = arena.identities
    if identities.mode == "keys":
        async with identities.anonymous.channel(arena.server.address) as channel:
            found = await bad_credentials(Operator(channel), arena.server, arena.settings)
        return [(what, identities.anonymous, metadata) for what, metadata in found.items()]
    name = "spiffe://attack.test/{}/{}".format(*VICTIM)
    alone = self_signed(name)
    return [
        ("a name without a rule", identities.anonymous, ()),
        ("another authority", identities.certified(name, by=Authority("attack")), ()),
        ("an expired certificate", identities.certified(name, ends=timedelta(hours=-1)), ()),
        ("a longer name", identities.certified(f"{name}/x"), ()),
        ("two names", identities.certified(name, "spiffe://attack.test/other/alice"), ()),
        ("a self-signed one", identities.with_pair(alone), ()),
        ("no certificate", identities.keyed(""), ()),
    ]


async def cross_tenant_calls(arena: Arena) -> None:
    """Every call of users on a victim's names, by other users of the same and of other accounts."""
    victim_caller, workers = await arena.caller(VICTIM), await arena.worker("honest")
    await victim_caller.cancel_open()
    async with victimized(victim_caller, workers) as victim:
        before = await victim.state()
        for user in STRANGERS:
            arena.count("REFUSED", await try_everything(await arena.caller(user), victim))
        if await victim.state() != before:
            arena.breaches.append("the victim's data are not what they were")
    await victim_caller.cancel_open()


def _names(who: Caller) -> Metadata:
    return (("x-runekeep-account", who.account), ("x-runekeep-user", who.user))


async def _post(
    channel: grpc.aio.Channel, method: str, raw: bytes, who: Caller | None, compression: Any = None
) -> bytes:
    """Sends a request as bytes, so that the client is not slower than the server."""
    call: Any = channel.unary_unary(method)
    return bytes(await call(raw, metadata=_names(who) if who else (), compression=compression, timeout=600))


async def _forget(who: Caller, session: str) -> None:
    """Deletes what was stored, so that no attack works on what another one left."""
    with suppress(grpc.aio.AioRpcError):
        await who.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session), timeout=60)


def _large_request(session: str, megabytes: int) -> bytes:
    """AddMessages of valid messages: one of a megabyte each."""
    text = common_pb2.Part(text=common_pb2.TextPart(text="word " * (MEGABYTE // 25)))
    messages = [common_pb2.Message(role=common_pb2.ROLE_USER, parts=[text] * 5) for _ in range(megabytes)]
    return session_service_pb2.AddMessagesRequest(session=session, messages=messages).SerializeToString()


_LIST_VALUE, _VALUES = 6, 1
"""Numbers of google.protobuf.Value.list_value and ListValue.values."""


def _nested(number: int, inner: bytes) -> bytes:
    """A field of a message, or of bytes."""
    size, length = len(inner), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + inner


def _with_input(session: str, value: bytes) -> bytes:
    """AddMessages of one tool call whose input has the serialized google.protobuf.Value in a field."""
    tool = common_pb2.ToolPart(tool_id=unique("call"), tool_name="grep", status=common_pb2.TOOL_STATUS_COMPLETED)
    entry = _nested(1, b"field") + _nested(2, value)
    with_input = tool.SerializeToString() + _nested(_number(tool, "input"), _nested(1, entry))
    message = common_pb2.Message(role=common_pb2.ROLE_ASSISTANT)
    part = _nested(_number(common_pb2.Part, "tool"), with_input)
    request = session_service_pb2.AddMessagesRequest(session=session)
    whole = message.SerializeToString() + _nested(_number(message, "parts"), part)
    return request.SerializeToString() + _nested(_number(request, "messages"), whole)


def _number(message: Any, field: str) -> int:
    return int(message.DESCRIPTOR.fields_by_name[field].number)


def _nulls(session: str, count: int) -> bytes:
    # Each is a Value whose null_value is 0.
    return _with_input(session, _nested(_LIST_VALUE, _nested(_VALUES, b"\x08\x00") * count))
