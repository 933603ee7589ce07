"""The doctor finds what is wrong, says it without a secret, and leaves everything as it was."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runekeep_server.doctor import machine, stores
from runekeep_server.doctor.__main__ import main as examine
from runekeep_server.doctor.check import Check, State, passwords_in, problem, without_secrets
from runekeep_server.settings import Settings
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.migrations.migrate import migrate_sqlite
from tests.support.doctor import SECRET, all_of, no_settings, settings, states
from tests.support.fork_server import run_module
from tests.support.ports import free_port
from tests.support.server_process import ROOT, ServerProcess

__all__ = ["no_settings"]


def runekeep_doctor(*arguments: object, columns: int = 80, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": str(columns), "RUNEKEEP_EMBEDDER": "none", **variables}
    ran = run_module("runekeep", "doctor", *arguments, environment=environment, timeout=120)
    assert SECRET not in ran.stdout + ran.stderr
    return ran


def told(ran: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    assert ran.returncode in (0, 1), ran.stderr
    said = json.loads(ran.stdout)
    assert said["problems"] == sum(check["state"] == "problem" for check in said["checks"])
    assert (ran.returncode == 1) == (said["problems"] > 0)
    return {check["check"]: check for check in said["checks"]}


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def test_without_a_server_all_is_looked_at_and_nothing_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ran = runekeep_doctor("--data-dir", data, "--json", RUNEKEEP_ADDRESS=free_address())

    found = told(ran)
    assert {name: check["state"] for name, check in found.items() if check["state"] == "problem"} == {}
    assert found["server.health"]["state"] == "skipped" and found["ports.address"]["state"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_runs_is_asked_and_its_store_left_to_it(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data").start()
    try:
        found = told(runekeep_doctor("--data-dir", server.data_dir, "--address", server.address, "--json"))
    finally:
        server.stop()

    by_state: dict[str, set[str]] = {}
    for name, check in found.items():
        by_state.setdefault(check["state"], set()).add(name)
    assert by_state.get("problem", set()) == set()
    assert {"store.reachable", "index.open", "ports.address"} <= by_state["skipped"]
    asked = {"server.health", "server.version", "server.store", "server.index", "server.blobs", "server.jobs"}
    assert asked | {"server.clock", "server.store_clock", "server.index_lag"} <= by_state["ok"]
    assert "no extractor" in found["server.workers"]["found"] and found["server.jobs"]["found"] == "none open"


def test_a_healthy_server_on_a_directory_that_only_it_was_given_is_no_problem(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data").start()
    try:
        found = told(runekeep_doctor("--json", RUNEKEEP_DATA_DIR=str(tmp_path), RUNEKEEP_ADDRESS=server.address))
    finally:
        server.stop()
    assert not [check for check in found.values() if check["state"] == "problem"]
    assert found["server.health"]["state"] == found["ports.address"]["state"] == "ok"
    assert "--data-dir" in found["ports.address"]["found"]


def test_that_no_server_answers_is_a_problem_where_one_was_named(tmp_path: Path) -> None:
    table = runekeep_doctor("--data-dir", tmp_path / "data", "--address", free_address())

    assert table.returncode == 1 and max(map(len, table.stdout.splitlines())) <= 80
    names = ("settings.load", "data.directory", "store.reachable", "index.open", "ports.address", "server.health")
    assert all(name in table.stdout for name in names)
    assert "1 problem" in table.stdout


def test_wrong_settings_are_told_without_their_values(tmp_path: Path) -> None:
    variables = {"RUNEKEEP_ADMIN_KEY": SECRET, "RUNEKEEP_LEASE_SECONDS": "never", "RUNEKEEP_LEASE_SECOND": "5"}
    ran = runekeep_doctor("--data-dir", tmp_path, "--json", **variables)

    found = told(ran)
    assert found["settings.load"]["state"] == "problem"
    assert found["settings.variables"] == {
        "check": "settings.variables",
        "state": "warning",
        "found": "RUNEKEEP_LEASE_SECOND is no setting",
        "do": "Did you mean RUNEKEEP_LEASE_SECONDS?",
    }
    assert found["packages.versions"]["state"] in ("ok", "skipped")


def test_what_libraries_tell_of_secrets_is_struck_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNEKEEP_EMBEDDER", "none")
    monkeypatch.setenv("RUNEKEEP_STORE_URL", f"postgresql://ann:{SECRET}%21@127.0.0.1:1/store")
    monkeypatch.setenv("RUNEKEEP_INDEX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("RUNEKEEP_INDEX_API_KEY", SECRET)

    async def told_all(*_: object) -> None:
        raise OSError(f"could not use {SECRET}! and {SECRET}%21")

    monkeypatch.setattr(stores, "postgres_facts", told_all)
    monkeypatch.setattr(stores, "qdrant_facts", told_all)
    assert examine(["--data-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert SECRET not in said and said.count("***") == 4
    assert without_secrets(problem("a.b", f"x{SECRET}\ny", ""), [SECRET, ""]).found == "x*** y"


ODD = ("hid/den", "hid?den", "hid#den", "hid[den", "4711/hidden", "4711#hidden", "hid@den/x")


@pytest.mark.parametrize("password", ODD)
@pytest.mark.parametrize("url", ["postgresql://localhost:{}@127.0.0.1:1/store", "http://localhost:{}@127.0.0.1:1"])
def test_no_piece_of_an_odd_password_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, password: str
) -> None:
    """The user is called like a host: with the password cut in two, that host is asked at the first piece."""
    monkeypatch.setenv("RUNEKEEP_EMBEDDER", "none")
    monkeypatch.setenv("RUNEKEEP_ADDRESS", free_address())
    store = url.startswith("postgresql")
    monkeypatch.setenv("RUNEKEEP_STORE_URL" if store else "RUNEKEEP_INDEX_URL", url.format(password))
    assert examine(["--data-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    found = {check["check"]: check["state"] for check in json.loads(said)["checks"]}
    assert found["store.reachable" if store else "index.open"] == "problem"
    assert [piece for piece in re.split(r"[/?#\[@]", password) if len(piece) > 1 and piece in said] == []


def test_passwords_are_found_wherever_they_stand() -> None:
    assert "p%2Fw" in (found := set(passwords_in("postgresql://u:p%2Fw@host/db?user=a@b"))) and "p/w" in found
    assert "p/w" in set(passwords_in("postgresql://u:p/w@host/db"))
    assert "pw" in set(passwords_in("postgresql://host/db?password=pw"))


async def test_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "data"
    assert states(await all_of(machine.data_directory(settings(data_dir=root)))) == {"data.directory": "ok"}
    directory = DataDirectory(root)
    directory.acquire()
    try:
        held = await all_of(machine.data_directory(settings(data_dir=root)))
        assert states(held) == dict.fromkeys(("data.directory", "data.owner", "data.space", "data.lock"), "ok")
        assert held["data.lock"].found.startswith(f"held by the server with process id {os.getpid()} on ")
        directory.mark_restore(directory.database)
        root.chmod(0o755)
        monkeypatch.setattr(machine, "LITTLE_BYTES", 10**18)
        assert states(await all_of(machine.data_directory(settings(data_dir=root)))) == {
            "data.directory": "problem", "data.owner": "warning", "data.space": "problem", "data.lock": "ok",
        }  # fmt: skip
    finally:
        directory.release()
    assert (await all_of(machine.data_directory(settings(data_dir=root))))["data.lock"].found == "no server works on it"
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert "4711" in (await all_of(machine.data_directory(settings(data_dir=root))))["data.owner"].found
    (tmp_path / "file").touch()
    assert states(await all_of(machine.data_directory(settings(data_dir=tmp_path / "file")))) == {
        "data.directory": "problem"
    }


def test_what_another_user_may_not_see_is_told_as_that(tmp_path: Path) -> None:
    """Root may see everything, so another one asks."""
    # Others may not enter pytest's own folder.
    above = Path(tempfile.mkdtemp(prefix="runekeep-doctor-"))
    try:
        above.chmod(0o711)
        for data, what in ((above / "data", "may not be written to"), (above / "data" / "inner", "is hidden")):
            data.mkdir(mode=0o700)
            migrate_sqlite(DataDirectory(data).database)
            # An ordinary user shuts itself out.
            (above / "data").chmod(0o000 if os.getuid() else 0o700)
            said = as_another_user(data)
            (above / "data").chmod(0o700)
            assert said["data.directory"]["state"] == "problem" and what in said["data.directory"]["found"]
            assert said["store.check"] == {
                "check": "store.check",
                "state": "problem",
                "found": f"{data / 'runekeep.db'}: Permission denied",
                "do": "Run doctor as the server's user.",
            }
            assert {"index.open", "blobs.check", "embedder.loads", "ports.address", "tls.certificate"} <= said.keys()
            assert "rebuild" not in said["index.open"]["do"]
    finally:
        shutil.rmtree(above)


def as_another_user(data: Path) -> dict[str, dict[str, str]]:
    # All that is needed is loaded before: that user may perhaps not read the sources.
    program = (
        "import os, sys; import asyncpg; from runekeep_server.doctor import __main__ as doctor;"
        "import encodings.idna, packaging.requirements, runekeep_server.rpc.tls;"
        "import runekeep_storage.embedders, runekeep_storage.index.edge;"
        "os.getuid() or (os.setgid(65534), os.setuid(65534)); sys.exit(doctor.main(['--data-dir', sys.argv[1]]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(data)],
        cwd=ROOT, env={**os.environ, "RUNEKEEP_EMBEDDER": "none", "RUNEKEEP_ADDRESS": free_address()},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    return {check["check"]: check for check in json.loads(ran.stdout)["checks"]}


async def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        both = settings(address=address, metrics_address="127.0.0.1:0")
        assert states(await all_of(machine.ports(both))) == {"ports.address": "problem", "ports.metrics": "ok"}
    assert states(await all_of(machine.ports(settings(address=address)))) == {"ports.address": "ok"}


async def test_certificates(tmp_path: Path) -> None:
    from tests.support.certificates import DAY, LOCAL, Authority

    authority = Authority()

    async def look(starts: int, ends: int, *, other_key: bool = False) -> Check:
        pair = authority.issue(*LOCAL, starts=starts * DAY, ends=ends * DAY + DAY / 2)
        certificate, key = pair.write(tmp_path, "server")
        if other_key:
            _, key = authority.issue(*LOCAL).write(tmp_path, "other")
        tls = {"certificate": certificate, "key": key}
        return (await all_of(machine.certificates(settings(tls=tls))))["tls.certificate"]

    fine = await look(-1, 90)
    assert fine.state is State.OK and "ends in 90 days" in fine.found
    assert (await look(-90, 3)).state is State.WARNING
    assert (await look(-90, -2)).state is State.PROBLEM
    assert (await look(-1, 90, other_key=True)).state is State.PROBLEM
    assert states(await all_of(machine.certificates(settings()))) == {"tls.certificate": "skipped"}


def test_a_server_is_asked_by_a_name_on_its_certificate(tmp_path: Path) -> None:
    from tests.support.certificates import Authority

    authority = Authority()
    ca = authority.write(tmp_path)
    certificate, key = authority.issue("memory.example").write(tmp_path, "server")
    files = {"RUNEKEEP_TLS__CERTIFICATE": str(certificate), "RUNEKEEP_TLS__KEY": str(key)}
    server = ServerProcess(tmp_path / "data", files).start()
    ask = ("--data-dir", server.data_dir, "--address", server.address, "--json")
    variables = {**files, "RUNEKEEP_CA_FILE": str(ca)}
    try:
        named = told(runekeep_doctor(*ask, "--server-name", "memory.example", **variables))
        assert named["server.health"]["state"] == named["server.version"]["state"] == "ok"
    finally:
        server.stop()


async def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        machine,
        "requires",
        lambda _: [
            "rich<1",
            "no-such-package>=1; extra == 'server'",
            "openai<1; extra == 'extractor'",
            "no-such-sdk; extra == 'extractor'",
            "pytest<1; extra == 'dev'",
        ],
    )
    (found,) = (await all_of(machine.packages())).values()
    assert found.state is State.PROBLEM and "rich is" in found.found and "no-such-package is missing" in found.found
    # Extractors may be installed elsewhere.
    assert "openai is" in found.found and "no-such-sdk" not in found.found and "pytest" not in found.found


async def test_a_check_that_fails_itself_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def store(_: Settings) -> AsyncIterator[Check]:
        raise RuntimeError("unheard of")
        yield

    monkeypatch.setenv("RUNEKEEP_EMBEDDER", "none")
    monkeypatch.setattr(stores, "store", store)
    assert await asyncio.to_thread(examine, ["--data-dir", str(tmp_path)]) == 1
    found = {check["check"]: check["state"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["store.check"] == "problem" and found["blobs.write"] == "ok" and found["packages.versions"]
