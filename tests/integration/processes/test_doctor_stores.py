"""The doctor looks at store, index, blobs and endpoints, and says what is wrong with them without a secret."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from runekeep_server.doctor import reranking, stores
from runekeep_server.doctor.check import State
from runekeep_server.doctor.destinations import destinations
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
from tests.support.doctor import SECRET, all_of, no_settings, settings, states
from tests.support.postgres import EMPTY, PostgresServer

__all__ = ["no_settings"]


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
