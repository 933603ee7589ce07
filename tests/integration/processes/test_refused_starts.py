"""Starts that may not write somewhere, or while PostgreSQL is away: a plain message and a status, no traceback."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.fork_server import launch
from tests.support.ports import free_port
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.refused_start import bound_by_permissions, may_mount, mounted_read_only, refused_start
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

Servers = Callable[..., ServerProcess]
DENIED = "Permission denied"


@pytest.fixture
def data(own_server: Servers) -> Iterator[Path]:
    """A data directory that a server has used. Its modes are restored afterwards, so that it can be removed."""
    server = own_server()
    server.stop()
    yield server.data_dir
    for path in (server.data_dir, *server.data_dir.rglob("*")):
        path.chmod(0o700)


@pytest.mark.parametrize(
    ("name", "mode", "told"),
    [
        ("", 0o500, DENIED),
        ("lock", 0o000, f"lock: {DENIED}"),
        ("runekeep.db", 0o400, f"runekeep.db cannot be opened for writing: {DENIED}"),
        ("index", 0o500, f"index: {DENIED}"),
        ("blobs", 0o500, f"blobs: {DENIED}"),
    ],
)
def test_what_may_not_be_written_to_is_named(data: Path, name: str, mode: int, told: str) -> None:
    (data / "blobs").mkdir(exist_ok=True)
    (data / name).chmod(mode)
    said = refused_start(data, wrapped_by=bound_by_permissions())
    assert told in said and str(data) in said and "RUNEKEEP_DATA_DIR" in said


def test_a_database_in_a_folder_that_may_not_be_written_to_is_refused(data: Path, tmp_path: Path) -> None:
    url = {"RUNEKEEP_STORE_URL": f"sqlite:///{data}/runekeep.db"}
    data.chmod(0o500)
    said = refused_start(tmp_path / "other", url, wrapped_by=bound_by_permissions())
    assert f"{data}/runekeep.db" in said and "RUNEKEEP_STORE_URL" in said


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file/data: Not a directory" in refused_start(tmp_path / "file" / "data")


def test_a_lock_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "lock").mkdir(parents=True)
    assert "lock: Is a directory" in refused_start(tmp_path / "data")


@pytest.mark.skipif(not may_mount(), reason="this user may not mount")
def test_a_read_only_mount_is_refused(data: Path) -> None:
    told = refused_start(data, wrapped_by=mounted_read_only(data))
    assert "Read-only file system" in told


@pytest.mark.skipif(not may_mount(), reason="this user may not mount")
def test_a_database_on_a_read_only_mount_is_refused(data: Path, tmp_path: Path) -> None:
    url = {"RUNEKEEP_STORE_URL": f"sqlite:///{data}/runekeep.db"}
    told = refused_start(tmp_path / "other", url, wrapped_by=mounted_read_only(data))
    assert "runekeep.db cannot be opened for writing: Read-only file system" in told


def test_a_read_only_postgres_is_refused(postgres_server: PostgresServer, tmp_path: Path) -> None:
    name = postgres_server.create()
    postgres_server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    told = refused_start(tmp_path / "data", {"RUNEKEEP_STORE_URL": postgres_server.url(name)})
    assert "PostgreSQL takes no writes: default_transaction_read_only is on" in told


def test_a_postgres_that_stays_away_ends_the_start_with_a_status_of_its_own(tmp_path: Path) -> None:
    away = {
        "RUNEKEEP_STORE_URL": f"postgresql://u:secret-pw@127.0.0.1:{free_port()}/db",
        "RUNEKEEP_STORE_WAIT_SECONDS": "1",
    }
    told = refused_start(tmp_path / "data", away, status=75)
    assert "PostgreSQL did not answer within 1 s" in told and "secret-pw" not in told


def test_a_wrong_database_is_not_waited_for(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """With the default wait the test would run out of time."""
    told = refused_start(tmp_path / "data", {
        "RUNEKEEP_STORE_URL": postgres_server.url("missing"), "RUNEKEEP_STORE_WAIT_SECONDS": "3600",
    })  # fmt: skip
    assert "missing" in told


@pytest.fixture
def cluster() -> Iterator[PostgresServer]:
    """A separate server, because the other tests' connections must not break."""
    server = PostgresServer().start()
    yield server
    server.stop()


class Starting:
    """A server on a known port that has not announced yet that it serves."""

    def __init__(self, data_dir: Path, settings: dict[str, str]) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._out, self._log = data_dir.with_suffix(".out"), data_dir.with_suffix(".start.log")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RUNEKEEP_")}
        with self._out.open("w") as stdout, self._log.open("w") as stderr:
            self._process = launch(
                "runekeep_server",
                ["--address", self.address, "--data-dir", str(data_dir)],
                environment={**inherited, "RUNEKEEP_EMBEDDER": "none", **settings},
                stdout=stdout,
                stderr=stderr,
            )

    def wait_for(self, event: str) -> None:
        """Waits until its log has that event."""
        until(lambda: f'"{event}"' in self._log.read_text())

    def wait_until_it_serves(self) -> None:
        until(lambda: self.address in self._out.read_text())

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)


class Knocker:
    """Connects to a port in a loop. gRPC must answer each connection that is accepted."""

    def __init__(self, port: int) -> None:
        self.refused = self.answered = 0
        self.dead: list[str] = []
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._knock)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _knock(self) -> None:
        while not self._stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                    # The preface of HTTP/2 and empty settings: a server that serves sends its own settings.
                    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
                    if connection.recv(9):
                        self.answered += 1
                    else:
                        self.dead.append("closed")
            except ConnectionRefusedError:
                self.refused += 1
            except OSError as error:
                self.dead.append(str(error))
            time.sleep(0.001)


def test_a_start_waits_for_postgres_and_the_port_is_closed_until_grpc_answers(
    cluster: PostgresServer, tmp_path: Path
) -> None:
    name = cluster.create(EMPTY)
    cluster.halt()
    starting = Starting(tmp_path / "data", {"RUNEKEEP_STORE_URL": cluster.url(name)})
    knocker = Knocker(starting.port)
    try:
        starting.wait_for("waiting_for_store")
        assert not knocker.answered and not knocker.dead
        cluster.resume()
        starting.wait_until_it_serves()
        with grpc.insecure_channel(starting.address) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        knocker.stop()
        status = starting.end()
    assert knocker.refused and knocker.answered and not knocker.dead
    assert status == 0


def test_the_port_of_a_sqlite_server_is_closed_until_grpc_answers(data: Path) -> None:
    starting = Starting(data, {})
    knocker = Knocker(starting.port)
    try:
        starting.wait_until_it_serves()
        with grpc.insecure_channel(starting.address) as channel:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    finally:
        knocker.stop()
        starting.end()
    assert knocker.refused and knocker.answered and not knocker.dead


def test_a_signal_ends_a_start_that_waits(tmp_path: Path) -> None:
    url = f"postgresql://u@127.0.0.1:{free_port()}/db"
    starting = Starting(tmp_path / "data", {"RUNEKEEP_STORE_URL": url, "RUNEKEEP_STORE_WAIT_SECONDS": "3600"})
    starting.wait_for("waiting_for_store")
    assert starting.end() == 0
