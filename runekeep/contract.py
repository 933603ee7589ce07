"""Lists the services of the contract."""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from runekeep.methods import rules_of
from runekeep.v1 import (
    admin_service_pb2,
    extractor_service_pb2,
    history_service_pb2,
    memory_service_pb2,
    method_options_pb2,
    proposal_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)

SERVICES: Final[tuple[ServiceDescriptor, ...]] = tuple(
    service
    for module in (
        session_service_pb2,
        memory_service_pb2,
        task_service_pb2,
        history_service_pb2,
        proposal_service_pb2,
        turn_memory_service_pb2,
        space_service_pb2,
        extractor_service_pb2,
        admin_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
)
"""All services, with those for users first."""


def methods_for(*audiences: method_options_pb2.Audience.ValueType) -> Iterator[MethodDescriptor]:
    """Yields the methods for these audiences, service by service."""
    for service in SERVICES:
        yield from (method for method in service.methods if rules_of(method).audience in audiences)
