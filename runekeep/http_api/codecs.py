"""Reads and writes messages of the contract as JSON and as protobuf."""

import json
from typing import Any, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

M = TypeVar("M", bound=Message)

MAX_JSON_VALUES = 20_000
"""Maximum values of a request in JSON. Reading so many takes some 100 ms, in which this process does nothing else.
Protobuf has no such limit. The largest body takes up to a second to be refused. The server is another process."""


class JsonCodec:
    """See `connectrpc.codec.Codec`. A field that the contract does not know is refused."""

    def name(self) -> str:
        return "json"

    def encode(self, message: Message) -> bytes:
        return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()

    def decode(self, data: bytes | bytearray, message_class: type[M]) -> M:
        # An empty body stands for an empty request.
        try:
            value = json.loads(data) if data else {}
            if not isinstance(value, dict):
                raise ConnectError(Code.INVALID_ARGUMENT, "the request cannot be read: it is no JSON object")
            _check_number_of_values(value)
            return json_format.ParseDict(value, message_class())
        except (json_format.ParseError, ValueError, RecursionError) as error:
            raise ConnectError(Code.INVALID_ARGUMENT, f"the request cannot be read: {error}") from error


def _check_number_of_values(value: Any) -> None:
    waiting, count = [value], 0
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            count += len(inner)
            waiting.extend(inner.values() if isinstance(inner, dict) else inner)
        if count > MAX_JSON_VALUES:
            raise ConnectError(
                Code.RESOURCE_EXHAUSTED, f"a request in JSON may have {MAX_JSON_VALUES} values: send fewer, or protobuf"
            )


class ProtobufCodec:
    """See `connectrpc.codec.Codec`."""

    def name(self) -> str:
        return "proto"

    def encode(self, message: Message) -> bytes:
        return message.SerializeToString()

    def decode(self, data: bytes | bytearray, message_class: type[M]) -> M:
        try:
            return message_class.FromString(bytes(data))
        except DecodeError as error:
            raise ConnectError(Code.INVALID_ARGUMENT, "the request cannot be read: it is no such message") from error
