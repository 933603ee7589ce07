"""The doctor finds what is wrong, says it without a secret, and leaves everything as it was."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from runekeep_server.doctor import machine, reranking, stores
from runekeep_server.doctor.__main__ import main as examine
from runekeep_server.doctor.check import Check, State, passwords_in, problem, without_secrets
from runekeep_server.doctor.destinations import destinations
from runekeep_server.settings import Settings, load_settings
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.embedders import open_embedder
from runekeep_storage.index.base import VectorDatatype, VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.index.qdrant import QdrantIndex
from runekeep_storage.migrations.migrate import HEAD, migrate_sqlite
from runekeep_storage.tables import BY_NAME
from tests.doubles import s3_server
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi, answer, failure, late
from tests.doubles.rerank_api import RerankApi
from tests.support.ports import free_port
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.server_process import ROOT, ServerProcess

SECRET = "hidden-7f3a"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("RUNEKEEP_", "ANTHROPIC_", "OPENAI_"))]:
        monkeypatch.delenv(name)


def settings(**given: Any) -> Settings:
    return load_settings(None, {"embedder": "none", **given})


async def all_of(checks: "AsyncIterator[Check] | Iterator[Check]") -> dict[str, Check]:
    found = [one async for one in checks] if isinstance(checks, AsyncIterator) else list(checks)
    return {check.name: check for check in found}


def states(found: dict[str, Check]) -> dict[str, str]:
    return {name: check.state.value for name, check in found.items()}


def runekeep_doctor(*arguments: object, columns: int = 80, **variables: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "runekeep", "doctor", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(columns), "RUNEKEEP_EMBEDDER": "none", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
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
        table = runekeep_doctor("--data-dir", server.data_dir, "--address", server.address)
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
    assert table.returncode == 0 and max(map(len, table.stdout.splitlines())) <= 80
    assert all(name in table.stdout for name in found)


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
    ran = runekeep_doctor("--data-dir", tmp_path / "data", "--address", free_address(), "--json")

    assert told(ran)["server.health"]["state"] == "problem"


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


async def test_an_embedded_store(tmp_path: Path) -> None:
    at = settings(data_dir=tmp_path)
    assert states(await all_of(stores.store(at))) == {"store.reachable": "ok"}
    database = DataDirectory(tmp_path).database
    migrate_sqlite(database)
    assert states(await all_of(stores.store(at))) == {
        "store.reachable": "ok", "store.integrity": "ok", "store.schema": "ok",
    }  # fmt: skip
    for revision, compatible_from, state in (
        ("r0001", "", "warning"), ("r9999", HEAD, "warning"), ("r9999", "r9999", "problem"),
    ):  # fmt: skip
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
            connection.execute("UPDATE store_schema SET revision = ?, compatible_from = ?", (revision, compatible_from))
            connection.commit()
        assert states(await all_of(stores.store(at)))["store.schema"] == state, revision
    content = bytearray(database.read_bytes())
    content[8192:16384] = b"\xff" * 8192
    database.write_bytes(content)
    found = await all_of(stores.store(at))
    assert found["store.integrity"].state is State.PROBLEM and "restore" in found["store.integrity"].advice
    database.write_bytes(b"no database at all" * 100)
    assert State.PROBLEM in {check.state for check in (await all_of(stores.store(at))).values()}


async def test_a_postgresql(postgres_server: PostgresServer) -> None:
    name = postgres_server.create()
    url = postgres_server.url(name)
    fine = await all_of(stores.store(settings(store_url=url)))
    assert set(states(fine).values()) == {"ok"}
    assert {"store.reachable", "store.role", "store.encoding", "store.clock", "store.schema"} == set(fine)

    postgres_server.sql("DROP ROLE IF EXISTS weak; CREATE ROLE weak LOGIN")
    weak = await all_of(stores.store(settings(store_url=url.replace("postgres@", "weak@"))))
    assert weak["store.role"].state is State.PROBLEM and "SELECT on" in weak["store.role"].found
    assert weak["store.schema"].state is State.SKIPPED
    # What is not ours is no business of the role's.
    postgres_server.sql(f"CREATE TABLE of_others (a int); GRANT ALL ON {', '.join(BY_NAME)} TO weak", name)
    served = await all_of(stores.store(settings(store_url=url.replace("postgres@", "weak@"))))
    assert served["store.role"].state is State.WARNING and "CREATE on the schema" in served["store.role"].found
    assert served["store.schema"].state is State.OK
    postgres_server.sql("UPDATE alembic_version SET version_num = 'r0001'", name)
    behind = await all_of(stores.store(settings(store_url=url.replace("postgres@", "weak@"))))
    assert behind["store.role"].state is State.PROBLEM
    postgres_server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "takes no writes" in (await all_of(stores.store(settings(store_url=url))))["store.role"].found

    postgres_server.sql("CREATE DATABASE latin ENCODING 'SQL_ASCII' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0")
    latin = await all_of(stores.store(settings(store_url=postgres_server.url("latin"))))
    assert states(latin)["store.encoding"] == "problem" and "no tables yet" in latin["store.schema"].found
    nowhere = await all_of(stores.store(settings(store_url=postgres_server.url("nowhere"))))
    assert states(nowhere) == {"store.reachable": "problem"}
    for one in (name, "latin"):
        postgres_server.drop(one)


async def test_a_postgresql_whose_clock_is_off_or_that_takes_few_connections(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    name = postgres_server.create(EMPTY)
    there = await stores.postgres_facts(postgres_server.url(name))
    postgres_server.drop(name)
    odd = replace(there, ahead=-90.0, connections=10, major=9, version="9.6")
    found = {check.name: check for check in stores._of_postgres(odd)}

    assert {name for name, check in found.items() if check.state is State.WARNING} == {
        "store.clock", "store.connections", "store.version",
    }  # fmt: skip
    assert "90.0 s behind" in found["store.clock"].found


async def test_an_embedded_index(tmp_path: Path) -> None:
    at = settings(data_dir=tmp_path)
    directory = DataDirectory(tmp_path).index
    assert states(await all_of(stores.index(at))) == {"index.open": "ok"}
    assert not directory.exists()
    index = EdgeIndex(directory)
    await index.open(VectorSpace("none", 0))
    await index.close()
    assert states(await all_of(stores.index(at))) == {"index.model": "ok", "index.open": "ok"}
    other = await all_of(stores.index(settings(data_dir=tmp_path, embedder="minilm")))
    assert states(other) == {"index.model": "problem", "index.open": "ok"}
    assert "index rebuild" in other["index.model"].advice
    (directory / "space.json").write_text("{")
    assert states(await all_of(stores.index(at))) == {"index.open": "problem"}


async def test_an_index_of_another_datatype(tmp_path: Path) -> None:
    index = EdgeIndex(DataDirectory(tmp_path).index, datatype=VectorDatatype.INT8)
    embedder = open_embedder("minilm")
    assert embedder is not None
    await index.open(VectorSpace(embedder.model, embedder.dimension))
    await index.close()
    await embedder.close()
    at = settings(data_dir=tmp_path, embedder="minilm", index_datatype="int8")
    fine = await all_of(stores.index(at))
    assert states(fine) == dict.fromkeys(("index.datatype", "index.model", "index.open"), "ok")
    other = await all_of(stores.index(settings(data_dir=tmp_path, embedder="minilm")))
    assert states(other) == {"index.datatype": "problem", "index.model": "ok", "index.open": "ok"}
    assert "int8" in other["index.datatype"].found and "float32" in other["index.datatype"].found
    assert "RUNEKEEP_INDEX_DATATYPE=int8" in other["index.datatype"].advice


async def test_a_qdrant_server(index_url: str) -> None:
    async def look() -> dict[str, str]:
        return states(await all_of(stores.index(settings(index_url=index_url))))

    assert await look() == {"index.open": "ok"}
    index = QdrantIndex(index_url)
    await index.open(VectorSpace("none", 0))
    await index.close()
    assert await look() == {"index.open": "ok", "index.model": "ok"}
    wanted = settings(index_url=index_url, embedder="minilm")
    assert states(await all_of(stores.index(wanted))) == {"index.open": "ok", "index.model": "problem"}
    too_old = await all_of(stores.index(settings(index_url=index_url, index_datatype="int8")))
    assert states(too_old) == {"index.open": "ok", "index.model": "ok", "index.version": "problem"}
    assert "1.20" in too_old["index.version"].advice
    assert states(await all_of(stores.index(settings(index_url="grpc://127.0.0.1:1")))) == {"index.open": "problem"}


async def test_places_of_blobs(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    fine = await all_of(stores.blobs(settings(data_dir=tmp_path, blob_dir=tmp_path / "blobs")))
    assert states(fine) == {"blobs.write": "ok"} and list((tmp_path / "blobs").iterdir()) == []
    (tmp_path / "file").touch()
    nowhere = await all_of(stores.blobs(settings(data_dir=tmp_path, blob_dir=Path("/proc/1/blobs"))))
    assert states(nowhere) == {"blobs.write": "problem"}
    assert states(await all_of(stores.blobs(settings(blob_url="file://x/y")))) == {"blobs.write": "problem"}


async def test_an_object_store_of_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server.running() as double:
        for name, value in (
            ("AWS_ENDPOINT_URL", double.endpoint), ("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "nowhere"),
            ("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", SECRET),
        ):  # fmt: skip
            monkeypatch.setenv(name, value)
        at = settings(blob_url=f"s3://{s3_server.BUCKET}/of/runekeep")
        assert states(await all_of(stores.blobs(at))) == {"blobs.write": "ok"}
        assert not double.objects
    found = await all_of(stores.blobs(at))
    assert states(found) == {"blobs.write": "problem"} and SECRET not in found["blobs.write"].found


async def test_embedders(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(await all_of(stores.embedder(settings()))) == {"embedder.loads": "warning"}
    assert states(await all_of(stores.embedder(settings(embedder="minilm")))) == {"embedder.loads": "ok"}
    monkeypatch.setattr("runekeep_storage.embedders.minilm.MODEL_PACKAGE", "no_such_package")
    missing = await all_of(stores.embedder(settings(embedder="minilm")))
    assert states(missing) == {"embedder.loads": "problem"} and "no_such_package" in missing["embedder.loads"].found


async def test_an_endpoint_of_vectors() -> None:
    with EmbeddingsApi() as api:
        endpoint = {"url": api.url, "model": MODEL, "dimension": DIMENSION}
        at = settings(embedder="openai", embedding=endpoint, embedder_api_key=SECRET)
        assert states(await all_of(stores.embedder(at))) == {"embedder.loads": "ok"}
        other = settings(embedder="openai", embedding={**endpoint, "dimension": 384})
        found = await all_of(stores.embedder(other))
        assert states(found) == {"embedder.loads": "problem"} and "of 8 numbers" in found["embedder.loads"].found
        own_fields = settings(embedder="openai", embedding={**endpoint, "query_fields": {"input_type": "query"}})
        api.otherwise = lambda request: (failure(400) if "input_type" in request.body else answer())(request)
        found = await all_of(stores.embedder(own_fields))
        assert states(found) == {"embedder.loads": "problem"} and "query_fields" in found["embedder.loads"].found
        api.otherwise = late(0.5)
        hasty = settings(embedder="openai", embedding={**endpoint, "query_seconds": 0.2})
        found = await all_of(stores.embedder(hasty))
        assert states(found) == {"embedder.loads": "problem"} and "within 0.2 s" in found["embedder.loads"].found
        api.otherwise = failure(401)
        found = await all_of(stores.embedder(at))
        assert states(found) == {"embedder.loads": "problem"} and SECRET not in found["embedder.loads"].found


async def test_a_reranker() -> None:
    assert not await all_of(reranking.reranker(settings()))
    with RerankApi("tei") as api:
        at = settings(reranker="endpoint", rerank={"url": api.base_url}, reranker_api_key=SECRET)
        assert states(await all_of(reranking.reranker(at))) == {"reranker.answers": "ok"}
        api.otherwise = api.failure(401)
        found = await all_of(reranking.reranker(at))
        assert states(found) == {"reranker.answers": "problem"} and SECRET not in found["reranker.answers"].found


def test_every_place_that_texts_are_sent_to() -> None:
    here = [(one.state.value, one.found) for one in destinations(settings())]
    assert [state for state, _ in here] == ["ok"] and "files below" in here[0][1]
    away = settings(
        store_url=f"postgresql://ann:{SECRET}@db.example:5432/all",
        index_url="http://127.0.0.1:6333, https://vectors.example",
        blob_url="s3://bucket/of/runekeep",
        embedder="openai",
        embedding={"url": "http://embed.example/v1", "model": "m", "dimension": 8},
        reranker="endpoint",
        rerank={"url": "http://rerank.example/v1"},
    )
    found = [(one.state.value, one.found.split(":")[0]) for one in destinations(away)]
    assert found == [
        ("ok", "db.example"),
        ("ok", "127.0.0.1"),
        ("ok", "vectors.example"),
        ("ok", "bucket"),
        ("warning", "embed.example"),
        ("warning", "rerank.example"),
    ]
    assert SECRET not in str(list(destinations(away)))


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
        assert told(runekeep_doctor(*ask, **variables))["server.health"]["state"] == "problem"
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
