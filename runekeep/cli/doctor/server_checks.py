"""Checks of a running server: whether it serves, and the state of its dependencies."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from time import monotonic
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep.client.connection.connection import Connection
from runekeep.client.connection.errors import RunekeepError, TlsError
from runekeep.client.wire.proto_json import enum_word
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

_DAMAGE_ADVICE = "Restore a backup: docs/operate/errors.md, DATA_DAMAGED. The server's log names what is damaged."
_ADMINS_ONLY = "the server reports its state only to callers of the scope admin: set RUNEKEEP_API_KEY to such a key"
_STATUS_WITHHELD = {
    "UNAUTHENTICATED": _ADMINS_ONLY,
    "PERMISSION_DENIED": _ADMINS_ONLY,
    "UNIMPLEMENTED": "the release of the server does not report its state",
}
"""Why a server does not report its state, by gRPC code."""

Check = dict[str, str]


async def check_server(address: str | None, server_name: str = "", *, expected: bool) -> list[Check]:
    """Returns the checks of the server at `address`. `server_name`: the name on its certificate, if it is not the host.
    If no server answers, that is a problem only if one is `expected`."""
    try:
        connection = Connection(address, server_name=server_name)
    except ValueError as error:
        return [_check("server.health", "problem", str(error), "Correct the address, or the files with certificates.")]
    try:
        found = await _health(connection)
        if found is None:
            state = "problem" if expected else "skipped"
            advice = "Start it with `runekeep serve`, or check the address and the firewall."
            return [_check("server.health", state, f"no server at {connection.address}", advice if expected else "")]
        return [*found, *await _status(connection)]
    except RunekeepError as error:
        return [
            _check(
                "server.health",
                "problem",
                f"{connection.address}: {error}",
                "Check that a Runekeep server listens there.",
            )
        ]
    finally:
        await connection.close()


async def _health(connection: Connection) -> list[Check] | None:
    """Returns the check of the health service; None if no server answers."""
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
        return [_check("server.health", "problem", what, "It starts, stops, or lost its store: see its log.")]
    without = f", without {', '.join(name.rpartition('.')[2] for name in unknown)}" if unknown else ""
    return [_check("server.health", "ok", f"{connection.address} serves{without}")]


async def _status(connection: Connection) -> list[Check]:
    stub = admin_service_pb2_grpc.AdminServiceStub(connection.stubs.channel)
    began, asked = monotonic(), datetime.now(UTC)
    try:
        status = await connection.call(stub.GetServerStatus, admin_service_pb2.GetServerStatusRequest())
    except RunekeepError as error:
        if error.code in _STATUS_WITHHELD:
            return [_check("server.status", "skipped", _STATUS_WITHHELD[error.code])]
        return [_check("server.status", "problem", str(error), "See the server's log.")]
    took = monotonic() - began
    return [*_status_checks(status), *_clock_checks(status, asked.timestamp() + took / 2, took)]


def _status_checks(status: Any) -> Iterator[Check]:
    here = _installed_version()
    text = f"{status.version}, work protocol {status.protocol_version}, schema {status.store_revision}"
    if here and status.version != here:
        yield _check("server.version", "warning", f"{text}; this command is {here}", "Complete the upgrade.")
    else:
        yield _check("server.version", "ok", text)
    for one in status.dependencies:
        if one.available:
            found = f"{one.kind}, answers in {one.round_trip.ToTimedelta().total_seconds() * 1000:.1f} ms"
            yield _check(f"server.{one.name}", "ok", found)
        else:
            found = f"{one.kind}: {one.problem or 'does not answer'}"
            yield _check(f"server.{one.name}", "problem", found, _ADVICE.get(one.name, "See the server's log."))
    yield from map(_data_check, status.data_checks)
    if status.HasField("embedder_change"):
        yield _embedder_change_check(status.embedder_change)
    yield _jobs_check(status)
    if status.workers:
        yield _check("server.workers", "ok", f"{status.workers} connected to this server")
    else:
        yield _check(
            "server.workers", "warning", "no extractor is connected to this server", "Start one: `runekeep extractor`."
        )
    if status.paused_workers:
        yield _paused_workers_check(status.paused_workers)
    lag = status.index_lag.ToTimedelta().total_seconds() if status.HasField("index_lag") else 0.0
    if lag > LAG_SECONDS:
        yield _check(
            "server.index_lag", "warning", f"{lag:.0f} s behind", "Check that the index runs; see the server's log."
        )
    else:
        yield _check("server.index_lag", "ok", f"{lag:.1f} s behind" if lag else "nothing waits to be found")


def _data_check(check: Any) -> Check:
    """Reports damage that the server knows of. The server checks by itself, once in RUNEKEEP_DATA_CHECK_SECONDS."""
    name = f"server.{check.name}_data"
    checked = "not checked yet since the server started"
    if check.HasField("end_time"):
        when = check.end_time.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M UTC")
        what = f"{check.blobs} read" if check.name == "blobs" else f"{check.extent} check"
        checked = f"{what}, ended {when}"
    if check.problem:
        return _check(name, "problem", f"{check.problem} ({checked})", _DAMAGE_ADVICE)
    return _check(name, "ok", f"nothing damaged is known ({checked})")


def _embedder_change_check(change: Any) -> Check:
    name = "server.embedder_change"
    state = enum_word(admin_service_pb2.EmbedderChangeState, change.state)
    text = f"from {change.from_embedder} to {change.embedder}: {state}"
    if change.problem and state in ("undoing", "undone"):
        return _check(name, "warning", text, change.problem)
    if change.problem:
        advice = "Repair the new embedder, or `runekeep index embed --undo`. Searches use the old embedder meanwhile."
        return _check(name, "warning", f"{text}; it waits: {change.problem}", advice)
    if state == "paused":
        return _check(name, "warning", text, "Go on with `runekeep index embed --resume`, or undo it.")
    if state == "running" and not change.users_left:
        advice = f"Set RUNEKEEP_EMBEDDER to {change.embedder} on all servers, then `runekeep index embed --finish`."
        return _check(name, "warning", f"{text}; all users are searched by {change.embedder}", advice)
    if state == "running":
        text += f"; {max(change.done_rows, 0)} of {max(change.total_rows, 0)} memories and messages have new vectors"
    return _check(name, "ok", text)


def _paused_workers_check(paused: Any) -> Check:
    names = [f"{one.worker_id} ({one.actor})" if one.worker_id else one.actor for one in paused]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return _check(
        "server.paused_workers",
        "warning",
        f"{', '.join(names[:3])}{more}: lost several jobs in a row and get no jobs for now",
        "See their logs: they take jobs, then end or hang without an answer. A pause ends by itself.",
    )


def _jobs_check(status: Any) -> Check:
    now = status.store_time.ToDatetime(UTC)
    there = [one for one in status.jobs if one.jobs]
    text = ", ".join(f"{one.jobs} {one.kind} {one.state}" for one in there) or "none open"
    since = [one.oldest_time.ToDatetime(UTC) for one in there if one.HasField("oldest_time")]
    old = [moment for moment in since if (now - moment).total_seconds() > OLD_JOB_SECONDS]
    if not old:
        return _check("server.jobs", "ok", text)
    hours = (now - min(old)).total_seconds() / 3600
    return _check(
        "server.jobs",
        "warning",
        f"{text}; the oldest for {hours:.1f} h",
        "Check that extractors run and that their model answers; see their logs.",
    )


def _clock_checks(status: Any, here: float, took: float) -> Iterator[Check]:
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
            yield _check(name, "warning", found, "Synchronize both clocks with NTP.")
        else:
            yield _check(name, "ok", found)


def _installed_version() -> str:
    try:
        return version("runekeep")
    except PackageNotFoundError:
        return ""


def _check(name: str, state: str, found: str, advice: str = "") -> Check:
    return {"check": name, "state": state, "found": " ".join(found.split()), "do": advice}
