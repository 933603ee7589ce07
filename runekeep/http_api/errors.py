"""Turns the error of a gRPC call into that of a Connect call, with the same details."""

from typing import Any as AnyType

import grpc
from connectrpc.code import Code
from connectrpc.errors import ConnectError, ErrorDetail
from google.protobuf import any_pb2, json_format
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from protobuf import message_from_json_value
from protobuf.wkt import Any, Struct

from runekeep.client.connection.errors import read_status

_KINDS = {type.full_name: type for type in error_details_pb2.DESCRIPTOR.message_types_by_name.values()}


class _ReadableDetail(ErrorDetail):
    """A detail that is also given as JSON, in `debug`: a caller with curl cannot read the protobuf in base64."""

    def __init__(self, detail: any_pb2.Any) -> None:
        super().__init__(Any(type_url=detail.type_url, value=detail.value))
        kind = _KINDS[detail.TypeName()]
        self._shown = json_format.MessageToDict(GetMessageClass(kind).FromString(detail.value))

    def value(self, _: AnyType = None) -> AnyType:
        return message_from_json_value(Struct, self._shown)


def connect_error(error: grpc.aio.AioRpcError) -> ConnectError:
    """Returns the error with code, message and details of the server."""
    details = [_ReadableDetail(one) for one in read_status(error).details if one.TypeName() in _KINDS]
    code = Code.CANCELED if error.code() is grpc.StatusCode.CANCELLED else Code(error.code().name.lower())
    return ConnectError(code, error.details() or "", details)
