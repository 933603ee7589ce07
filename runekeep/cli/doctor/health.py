"""The command that asks a server whether it serves, for people and for the probes of orchestrators."""

from typing import Annotated

import typer

from runekeep.cli.common.errors import FAILED, fail
from runekeep.cli.common.options import Address, AsJson
from runekeep.cli.common.output import Output

SERVING = "SERVING"
NOT_REACHED = "NOT_REACHED"


def health(
    address: Address = None,
    service: Annotated[
        str,
        typer.Option(
            "--service", metavar="NAME", help="Service, such as runekeep.v1.SessionService; default: the whole server."
        ),
    ] = "",
    server_name: Annotated[
        str,
        typer.Option("--server-name", metavar="NAME", help="Name on the server's certificate, if it is not the host."),
    ] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Time to wait for an answer.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Check whether a server serves. The exit status is 0 if it does, 1 if it does not or cannot be reached.

    The command needs and sends no key. Certificates come from the environment, as for every command.
    """
    import asyncio

    from runekeep.transport.transport import TransportError

    try:
        target, status, details = asyncio.run(_ask(address, service, server_name, timeout))
    except TransportError as error:
        fail(str(error))
    output = Output(as_json)
    if as_json:
        said = {"address": target, "service": service, "status": status}
        output.json({**said, "details": details} if details else said)
    elif status == SERVING:
        output.say(f"{target} serves{f' {service}' if service else ''}.")
    if status == SERVING:
        return
    if as_json:
        raise typer.Exit(FAILED)
    fail(f"{service or 'The server'} at {target}: {status}{f': {details}' if details else ''}")


async def _ask(address: str | None, service: str, server_name: str, timeout: float) -> tuple[str, str, str]:
    """Returns the address, the status (a name of grpc.health.v1, or NOT_REACHED), and details."""
    import os
    from dataclasses import replace

    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from runekeep.client.connection.connection import DEFAULT_ADDRESS, NAMES
    from runekeep.transport.transport import transport

    configured = transport(
        address or os.environ.get(NAMES.address) or DEFAULT_ADDRESS,
        NAMES,
        ca_file=os.environ.get(NAMES.ca_file),
        cert_file=os.environ.get(NAMES.cert_file),
        key_file=os.environ.get(NAMES.key_file),
    )
    # Ask one server: a channel to several leaves out those that do not serve.
    one = replace(configured, balanced=False)
    async with one.open((("grpc.ssl_target_name_override", server_name),) if server_name else ()) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return configured.target, "SERVICE_UNKNOWN", "the server has no such service"
            return configured.target, NOT_REACHED, f"{error.code().name}: {error.details()}"
    return configured.target, health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status), ""
