"""A server with its blobs in an object store: what is large goes there and comes back, also when the store was away."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from json import loads

import grpc.aio

from runekeep.v1 import common_pb2, session_service_pb2
from runekeep_schemas.turns.buckets import Bucket
from runekeep_storage.blobs.blobs import GRACE_SECONDS
from tests.doubles import s3_server
from tests.doubles.s3_server import Fault, S3Double
from tests.support.callers import Caller, failure, used_tool
from tests.support.server_process import ServerProcess
from tests.support.turns import bucketed

WHOLE = "a large output " * 2_000


def at(double: S3Double) -> dict[str, str]:
    """Settings of a server with its blobs there."""
    return {
        "RUNEKEEP_BLOB_URL": f"s3://{s3_server.BUCKET}/fleet",
        "AWS_ENDPOINT_URL": double.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "nowhere",
    }


async def test_large_outputs_and_buckets_lie_in_the_object_store(own_server: Callable[..., ServerProcess]) -> None:
    with s3_server.running() as double:
        server = own_server(at(double))
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = Caller(channel, "anna")
            session = await caller.session()
            await caller.add(session, used_tool("call-1", WHOLE))

            (key,) = double.objects
            assert key.startswith("fleet/acme/anna/") and double.objects[key][0] == WHOLE.encode()
            assert (
                loads((await caller.read(f"viking://session/{session}/tools/call-1/tool.json")).text)["output"] == WHOLE
            )

            (bucket,) = await bucketed(caller, session, "Greece")
            # A slow server may apply the change in a second attempt; the first one leaves a blob for the sweep.
            stored = {name: double.objects[name][0].decode() for name in double.objects.keys() - {key}}
            assert all(name.startswith("fleet/acme/anna/") for name in stored)
            assert {Bucket.from_text(text).name for text in stored.values()} == {bucket.name} == {"Greece"}
            assert loads((await caller.read(bucket.hosted_uri)).text) in map(loads, stored.values())
        server.stop()


async def test_a_store_that_is_away_is_told_and_the_call_repeated(own_server: Callable[..., ServerProcess]) -> None:
    with s3_server.running() as double:
        server = own_server(at(double))
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = Caller(channel, "anna")
            session = await caller.session()
            message = used_tool("call-1", WHOLE, id="m1")
            double.faults.append(Fault.DENIED)

            failed = await failure(caller.add(session, message))

            assert failed.seen == ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE")
            await caller.add(session, used_tool("call-2", "short"))
            await caller.add(session, message)
            # A repetition by somebody who did not hear the answer, when the blob may have another name.
            double.age(24 * 3600.0)
            await caller.add(session, message)
            assert (
                loads((await caller.read(f"viking://session/{session}/tools/call-1/tool.json")).text)["output"] == WHOLE
            )
        server.stop()


async def test_a_repeated_call_leaves_no_second_blob(own_server: Callable[..., ServerProcess]) -> None:
    """By somebody who did not hear the answer, so late that the same data would be another blob."""
    with s3_server.running() as double:
        server = own_server(at(double))
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = Caller(channel, "anna")
            session = await caller.session()
            message = used_tool("call-1", WHOLE, id="m1")
            request = session_service_pb2.AddMessagesRequest(session=session, messages=[message], request_id="r1")
            first = await caller.sessions.AddMessages(request)
            assert len(double.objects) == 1
            double.age(45 * 60.0)

            assert await caller.sessions.AddMessages(request) == first

            assert len(double.objects) == 1
            request.messages[0].parts[0].tool.output = WHOLE[1:]
            failed = await failure(caller.sessions.AddMessages(request))
            assert failed.seen == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED") and len(double.objects) == 1
        server.stop()


async def test_what_a_refused_call_put_is_looked_for_later(own_server: Callable[..., ServerProcess]) -> None:
    with s3_server.running() as double:
        server = own_server(at(double))
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = Caller(channel, "anna")
            wrong = common_pb2.Message(role=common_pb2.ROLE_USER)
            refused = [[used_tool("call-1", WHOLE), wrong], [used_tool("call-1", WHOLE)]]
            for messages, left in zip(refused, (0, 1), strict=True):
                await failure(caller.add("not-there", *messages))
                assert len(double.objects) == left
        with closing(sqlite3.connect(server.data_dir / "runekeep.db")) as store:
            (mark,) = store.execute("SELECT user_id, due_at - expected_at FROM blob_sweeps").fetchall()
        assert mark == ("anna", GRACE_SECONDS * 1_000_000)
        server.stop()


def test_a_url_of_no_object_store_ends_the_start(own_server: Callable[..., ServerProcess]) -> None:
    for url in ("memory:///", "s3://key:secret@bucket/prefix"):
        try:
            own_server({"RUNEKEEP_BLOB_URL": url}, data=url[:2])
        except AssertionError as error:
            assert "did not start" in str(error) and "RUNEKEEP_BLOB_URL" in str(error) and "secret" not in str(error)
        else:
            raise AssertionError(f"{url} was taken")
