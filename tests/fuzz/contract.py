"""What a server says that it serves, by reflection."""

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import runekeep.contract  # noqa: F401  # for the pool, in which messages are looked up

PACKAGE = "runekeep.v1."


class Method:
    """One method. `input` and `output` are descriptors of this program's own stubs."""

    def __init__(self, service: str, name: str, input: str, output: str, *, reads: bool, writes: bool) -> None:
        self.service = service
        self.name = name
        self.path = f"/{PACKAGE}{service}/{name}"
        self.input: Descriptor = Default().FindMessageTypeByName(input)
        self.output: Descriptor = Default().FindMessageTypeByName(output)
        self.client_streams = reads
        self.server_streams = writes

    def __str__(self) -> str:
        return f"{self.service}/{self.name}"

    def answer(self, data: bytes) -> Message:
        return GetMessageClass(self.output).FromString(data)

    def request(self, data: bytes) -> Message:
        """Raises DecodeError."""
        return GetMessageClass(self.input).FromString(data)


def methods_of(address: str) -> list[Method]:
    """All methods of the package, by service and name."""
    with grpc.insecure_channel(address) as channel:
        reflected = ProtoReflectionDescriptorDatabase(channel)
        found: list[Method] = []
        for service in reflected.get_services():
            if not service.startswith(PACKAGE):
                continue
            short = service.removeprefix(PACKAGE)
            for one in reflected.FindFileContainingSymbol(service).service:
                found += [
                    Method(
                        short,
                        method.name,
                        method.input_type.lstrip("."),
                        method.output_type.lstrip("."),
                        reads=method.client_streaming,
                        writes=method.server_streaming,
                    )
                    for method in one.method
                    if one.name == short
                ]
    return sorted(found, key=str)
