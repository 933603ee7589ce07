"""What a running server has to say: whether it serves, and how what it depends on is doing."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from time import monotonic
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep.client.connection import Connection
from runekeep.client.errors import RunekeepError, TlsError
from runekeep.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    extractor_service_pb2,
    history_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)

CALL_SECONDS = 3.0
STATUS_SECONDS = 10.0
CLOCK_SECONDS = 5.0
OLD_JOB_SECONDS = 3600.0
LAG_SECONDS = 60.0
_FILES = (
    session_service_pb2,
    memory_service_pb2,
    task_service_pb2,
    history_service_pb2,
    space_service_pb2,
    turn_memory_service_pb2,
    extractor_service_pb2,
    admin_service_pb2,
)
_ADVICE = {
    "store": "See the server's log and PostgreSQL, or the disk of the data directory.",
    "index": "See the server's log and Qdrant; searches fail meanwhile, nothing is lost.",
    "embedder": "See the server's log; searches go by words alone meanwhile.",
    "blobs": "See the server's log, and the folder or object store of the blobs.",
}

_DAMAGE_ADVICE = "Restore a backup: docs/failures.md, DATA_DAMAGED. The server's log names what is damaged."
_ADMINS_ONLY = "it tells callers of the scope admin alone: RUNEKEEP_API_KEY may hold such a key"
_UNTOLD = {
    "UNAUTHENTICATED": _ADMINS_ONLY,
    "PERMISSION_DENIED": _ADMINS_ONLY,
    "UNIMPLEMENTED": "the server is from a release that does not tell",
}
"""Why a server that serves does not say how it is, by the code of its answer."""

Said = dict[str, str]


async def ask(address: str | None, server_name: str = "", *, expected: bool) -> list[Said]:
    """The checks of the server at `address`, whose certificate is for `server_name` where one is given. That none
    answers is a problem where one was `expected`."""
    try:
        connection = Connection(address, server_name=server_name)
    except ValueError as error:
        return [_said("server.health", "problem", str(error), "Mend the address, or the files of certificates.")]
    try:
        found = await _health(connection)
        if found is None:
            state = "problem" if expected else "skipped"
            advice = "Start it: `runekeep serve`. Is the address the right one, and no firewall between?"
            return [_said("server.health", state, f"no server at {connection.address}", advice if expected else "")]
        return [*found, *await _status(connection)]
    except RunekeepError as error:
        return [_said("server.health", "problem", f"{connection.address}: {error}", "Is it a Runekeep server?")]
    finally:
        await connection.close()


async def _health(connection: Connection) -> list[Said] | None:
    """None when nobody answers."""
    stub = health_pb2_grpc.HealthStub(connection.stubs.channel)
    names = ["", *(service.full_name for file in _FILES for service in file.DESCRIPTOR.services_by_name.values())]
    away, unknown = [], []
    for name in names:
        try:
            answer = await stub.Check(
                health_pb2.HealthCheckRequest(service=name), timeout=CALL_SECONDS, metadata=connection.metadata
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                unknown.append(name)
                continue
            failed = connection.failure(error)
            if failed.code == "UNAVAILABLE" and not isinstance(failed, TlsError):
                return None
            raise failed from error
        if answer.status != health_pb2.HealthCheckResponse.SERVING:
            away.append(name.rpartition(".")[2] or "the server")
    if away:
        what = f"{connection.address} does not serve: {', '.join(away)}"
        return [_said("server.health", "problem", what, "It starts, ends, or lost its store: see its log.")]
    without = f", without {', '.join(name.rpartition('.')[2] for name in unknown)}" if unknown else ""
    return [_said("server.health", "ok", f"{connection.address} serves{without}")]


async def _status(connection: Connection) -> list[Said]:
    stub = admin_service_pb2_grpc.AdminServiceStub(connection.stubs.channel)
    began, asked = monotonic(), datetime.now(UTC)
    try:
        status = await connection.call(stub.GetServerStatus, admin_service_pb2.GetServerStatusRequest(), STATUS_SECONDS)
    except RunekeepError as error:
        if error.code in _UNTOLD:
            return [_said("server.status", "skipped", _UNTOLD[error.code])]
        return [_said("server.status", "problem", str(error), "See the server's log.")]
    took = monotonic() - began
    return [*_of_status(status), *_clocks(status, asked.timestamp() + took / 2, took)]


def _of_status(status: Any) -> Iterator[Said]:
    here = _release()
    told = f"{status.version}, work protocol {status.protocol_version}, schema {status.store_revision}"
    if here and status.version != here:
        yield _said("server.version", "warning", f"{told}; this command is {here}", "Go on with the upgrade.")
    else:
        yield _said("server.version", "ok", told)
    for one in status.dependencies:
        if one.available:
            found = f"{one.kind}, answers in {one.round_trip.ToTimedelta().total_seconds() * 1000:.1f} ms"
            yield _said(f"server.{one.name}", "ok", found)
        else:
            found = f"{one.kind}: {one.problem or 'does not answer'}"
            yield _said(f"server.{one.name}", "problem", found, _ADVICE.get(one.name, "See the server's log."))
    yield from map(_data, status.data_checks)
    yield _jobs(status)
    if status.workers:
        yield _said("server.workers", "ok", f"{status.workers} connected to this server")
    else:
        yield _said(
            "server.workers", "warning", "no extractor is connected to this server", "Start one: `runekeep extractor`."
        )
    if status.paused_workers:
        yield _paused(status.paused_workers)
    lag = status.index_lag.ToTimedelta().total_seconds() if status.HasField("index_lag") else 0.0
    if lag > LAG_SECONDS:
        yield _said("server.index_lag", "warning", f"{lag:.0f} s behind", "Is the index up? See the server's log.")
    else:
        yield _said("server.index_lag", "ok", f"{lag:.1f} s behind" if lag else "nothing waits to be found")


def _data(check: Any) -> Said:
    """Reports damage that the server knows of. The server checks by itself, once in RUNEKEEP_DATA_CHECK_SECONDS."""
    name = f"server.{check.name}_data"
    checked = "not checked yet since the server started"
    if check.HasField("end_time"):
        when = check.end_time.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M UTC")
        what = f"{check.blobs} read" if check.name == "blobs" else f"{check.extent} check"
        checked = f"{what}, ended {when}"
    if check.problem:
        return _said(name, "problem", f"{check.problem} ({checked})", _DAMAGE_ADVICE)
    return _said(name, "ok", f"nothing damaged is known ({checked})")


def _paused(paused: Any) -> Said:
    names = [f"{one.worker_id} ({one.actor})" if one.worker_id else one.actor for one in paused]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return _said(
        "server.paused_workers",
        "warning",
        f"{', '.join(names[:3])}{more}: lost several jobs in a row and get none for now",
        "See their logs: they take jobs and end, or hang, without a word. A pause ends by itself.",
    )


def _jobs(status: Any) -> Said:
    now = status.store_time.ToDatetime(UTC)
    there = [one for one in status.jobs if one.jobs]
    told = ", ".join(f"{one.jobs} {one.kind} {one.state}" for one in there) or "none open"
    since = [one.oldest_time.ToDatetime(UTC) for one in there if one.HasField("oldest_time")]
    old = [moment for moment in since if (now - moment).total_seconds() > OLD_JOB_SECONDS]
    if not old:
        return _said("server.jobs", "ok", told)
    hours = (now - min(old)).total_seconds() / 3600
    return _said(
        "server.jobs",
        "warning",
        f"{told}; the oldest for {hours:.1f} h",
        "Do extractors run, and does their model answer? See their logs.",
    )


def _clocks(status: Any, here: float, took: float) -> Iterator[Said]:
    server = status.server_time.ToDatetime(UTC).timestamp()
    for name, what, off in (
        ("server.clock", "the server's clock and this machine's", server - here),
        (
            "server.store_clock",
            "the store's clock and the server's",
            status.store_time.ToDatetime(UTC).timestamp() - server,
        ),
    ):
        found = f"{what} are {abs(off):.1f} s apart"
        if abs(off) > CLOCK_SECONDS + took:
            yield _said(name, "warning", found, "Have both keep time by NTP.")
        else:
            yield _said(name, "ok", found)


def _release() -> str:
    try:
        return version("runekeep")
    except PackageNotFoundError:
        return ""


def _said(name: str, state: str, found: str, advice: str = "") -> Said:
    return {"check": name, "state": state, "found": " ".join(found.split()), "do": advice}
