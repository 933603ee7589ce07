"""Every method of the contract has rules. A server with a method without rules does not start, and a method that is not
in the contract is not served, whoever calls it."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from runekeep.v1.method_options_pb2 import AUDIENCE_USERS, AUDIENCE_WORKERS, AuditRules, MethodRules, rules
from runekeep_server.app import Service
from runekeep_server.rpc.methods import METHODS, WITHOUT_CREDENTIALS, RulesError, read_methods
from runekeep_server.settings import DeadlineSettings
from tests.unit.server.rpc.test_calls import serving

PROTO = Path(__file__).parents[4] / "proto" / "runekeep" / "v1"
FIVE = Duration(seconds=5)
GOOD = MethodRules(audience=AUDIENCE_USERS, deadline=FIVE)


def methods(*files: FileDescriptor) -> Iterator[str]:
    for file in files:
        for service in file.services_by_name.values():
            yield from (f"/{service.full_name}/{method.name}" for method in service.methods)


def contract_with(*each: MethodRules | None, streams: bool = False) -> list[ServiceDescriptor]:
    """One service, with a method for each of the rules; None: without the option."""
    file = FileDescriptorProto(name="other.proto", package="other.v1")
    file.message_type.add(name="Request").field.add(
        name="session", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL"
    )
    service = file.service.add(name="OtherService")
    for number, one in enumerate(each):
        method = service.method.add(
            name=f"Get{number}", input_type=".other.v1.Request", output_type=".other.v1.Request"
        )
        method.client_streaming = method.server_streaming = streams
        if one is not None:
            method.options.Extensions[rules].CopyFrom(one)
    pool = DescriptorPool()
    pool.Add(file)
    return [pool.FindServiceByName("other.v1.OtherService")]


def test_every_method_of_the_contract_has_rules_and_no_other_has() -> None:
    files = [import_module(f"runekeep.v1.{file.stem}_pb2").DESCRIPTOR for file in PROTO.glob("*_service.proto")]
    assert set(METHODS) == set(methods(*files))


REFUSED: dict[str, tuple[MethodRules | None, str]] = {
    "no rules": (None, r"other\.v1\.OtherService\.Get1 has no option"),
    "no audience": (MethodRules(deadline=FIVE), "audience"),
    "no deadline of a single answer": (MethodRules(audience=AUDIENCE_USERS), "deadline"),
    "a deadline that its setting does not have": (
        MethodRules(audience=AUDIENCE_USERS, deadline=FIVE, deadline_setting="find_seconds"),
        "deadline",
    ),
    "a setting that there is not": (
        MethodRules(audience=AUDIENCE_USERS, deadline=FIVE, deadline_setting="other_seconds"),
        "deadline_setting",
    ),
    "an audience that is not the service's": (MethodRules(audience=AUDIENCE_WORKERS, deadline=FIVE), "same audience"),
    "an audited field that there is not": (
        MethodRules(audience=AUDIENCE_USERS, deadline=FIVE, audit=AuditRules(subject=["session", "turn"])),
        "turn, which Request does not have",
    ),
    "destructive and not audited": (
        MethodRules(audience=AUDIENCE_USERS, deadline=FIVE, destructive=True),
        "destructive",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_contract_with_a_method_without_usable_rules_is_refused(case: str) -> None:
    bad, says = REFUSED[case]
    with pytest.raises(RulesError, match=says):
        read_methods(contract_with(GOOD, bad))


def test_the_log_reads_no_field_of_a_stream_of_requests() -> None:
    audited = MethodRules(audience=AUDIENCE_USERS, audit=AuditRules(subject=["session"]))
    with pytest.raises(RulesError, match="a stream of them"):
        read_methods(contract_with(audited, streams=True))


def test_the_settings_replace_the_deadline_of_the_contract_and_give_none_to_a_stream_without() -> None:
    settings = DeadlineSettings(call_seconds=7)
    (unary,) = read_methods(contract_with(GOOD)).values()
    (stream,) = read_methods(contract_with(MethodRules(audience=AUDIENCE_USERS), streams=True)).values()
    assert (unary.default_seconds, unary.with_deadline(settings).default_seconds) == (5, 7)
    assert stream.with_deadline(settings).default_seconds is None


def test_only_health_and_reflection_need_no_credentials() -> None:
    assert set(methods(health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)) == WITHOUT_CREDENTIALS


@pytest.mark.parametrize(
    "name", ["/runekeep.v1.SessionService/Undeclared", "/runekeep.v1.NewService/Get", "/other.v1.Health/Check"]
)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_method_that_is_not_in_the_contract_is_refused(name: str, streams: bool) -> None:
    served: list[bytes] = []

    async def serve(request: bytes, context: Any) -> bytes:
        served.append(request)
        return b"the answer"

    async def serve_stream(requests: Any, context: Any) -> bytes:
        async for request in requests:
            served.append(request)
        return b"the answer"

    service, _, method = name[1:].partition("/")
    # Generated code has handlers of both kinds.
    kind: Any = grpc.stream_unary_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
    handler = kind(serve_stream if streams else serve, bytes, bytes)

    def add(_servicer: object, server: Any) -> None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    async with serving(Service(add, object(), service)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            if streams:
                await channel.stream_unary(name)(iter([b"a request"]))
            else:
                await channel.unary_unary(name)(b"a request")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert served == []
