"""The reference of the contract: what a caller must keep to stands there in words."""

from google.protobuf import descriptor_pb2

from proto.reference import Page
from runekeep.buf.validate import validate_pb2
from runekeep.v1 import common_pb2


def page(file: descriptor_pb2.FileDescriptorProto) -> str:
    return Page(file, {}).text()


def test_a_oneof_that_must_be_set_is_said_and_another_is_not() -> None:
    file = descriptor_pb2.FileDescriptorProto()
    common_pb2.DESCRIPTOR.CopyToProto(file)
    required = {
        (message.name, oneof.name)
        for message in file.message_type
        for oneof in message.oneof_decl
        if oneof.options.Extensions[validate_pb2.oneof].required
    }
    assert ("Part", "part") in required
    text = page(file)
    for name, oneof in required:
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert f"Exactly one of `{oneof}` is required." in section
    assert text.count("Exactly one of") == len(required)
