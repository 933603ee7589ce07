"""Checks store, index, blobs and embedder, as a server with these settings would find them."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from time import monotonic

from runekeep_server.app import StartError
from runekeep_server.doctor.check import Check, is_readable, ok, problem, skipped, warning
from runekeep_server.doctor.machine import AS_THE_SERVERS_USER, held_off, holder
from runekeep_server.services import embedding_options, store_options
from runekeep_server.settings import Settings
from runekeep_storage.blobs.blobs import Blobs, FolderBlobs
from runekeep_storage.database import Space
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.drivers.postgres.driver import KEPT_CONNECTIONS, READERS
from runekeep_storage.drivers.postgres.writer import WRITERS
from runekeep_storage.drivers.sqlite.file_lock import owner_of
from runekeep_storage.drivers.sqlite.wal_check import check_log
from runekeep_storage.embedders import EmbedderUnavailable, EmbeddingOptions, open_embedder
from runekeep_storage.embedders.known_vector import KnownVector
from runekeep_storage.embedders.remote import RemoteEmbedder, name_of_vectors
from runekeep_storage.errors import StoreLost, StoreUnavailable
from runekeep_storage.index.base import (
    SPARSE_ONLY,
    IndexMismatch,
    IndexUnavailable,
    VectorSpace,
    describe,
)
from runekeep_storage.index.stored_vectors import StoredVectors
from runekeep_storage.migrations.migrate import HEAD, Schema, SchemaTooNew, sqlite_schema
from runekeep_storage.store import POSTGRES_SCHEMES, embedded_database
from runekeep_storage.transfer.diagnostics import (
    PostgresFacts,
    QdrantFacts,
    blob_facts,
    edge_points,
    edge_vectors,
    postgres_facts,
    qdrant_facts,
    sqlite_facts,
)

OLDEST_POSTGRES = 15
"""Oldest major version that this release was tested with."""
CLOCK_SECONDS = 5.0
_ASKED = "the server works on it and tells how it is"


async def store(settings: Settings) -> AsyncIterator[Check]:
    if settings.store_url.startswith(POSTGRES_SCHEMES):
        async for check in _postgres(settings.store_url):
            yield check
        return
    try:
        database = embedded_database(store_options(settings))
    except StartError as error:
        yield problem("store.reachable", str(error), "Set RUNEKEEP_STORE_URL to one of those.")
        return
    with held_off(settings.data_dir) as working:
        if working is not None:
            yield skipped("store.reachable", _ASKED)
            return
        if not database.exists():
            yield ok("store.reachable", f"{database} is not there yet; a server makes it at its first start")
            return
        owner = owner_of(database)
        if owner is not None:
            yield problem(
                "store.owner",
                f"{database} is in use by the server with {owner}, which has another data directory, or whose lock file"
                " was deleted",
                "Stop that server, or give this one a database of its own with RUNEKEEP_STORE_URL.",
            )
            return
        if not os.access(database, os.W_OK) or not os.access(database.parent, os.W_OK):
            yield problem(
                "store.read_only",
                f"{database} or its folder may not be written to",
                "Mount it for writing, or give it to the server's user with chown; run doctor as that user.",
            )
            return
        try:
            # Before the database is opened for writing, which would apply the log to it.
            await asyncio.to_thread(check_log, database)
            facts = await asyncio.to_thread(sqlite_facts, database)
        except StoreLost as error:
            yield problem("store.log", str(error), "Bring back the log that belongs to it.")
            return
        except (sqlite3.Error, OSError) as error:
            yield problem(
                "store.reachable", f"{database}: {error}", "Is it the server's own file, and may you read it?"
            )
            return
        yield ok("store.reachable", f"SQLite, {facts.bytes / 1e6:.1f} MB")
        if facts.problem:
            yield problem(
                "store.integrity", f"SQLite says: {facts.problem}", "Restore a backup: `runekeep restore DIR`."
            )
        elif facts.whole:
            yield ok("store.integrity", "SQLite finds it whole")
        else:
            yield ok("store.integrity", "no fault found in the seconds that were given; it is large")
        if not facts.problem:
            yield _schema(facts.schema)


async def _postgres(url: str) -> AsyncIterator[Check]:
    import asyncpg

    try:
        if not is_readable(url):
            raise ValueError(url)
        facts = await postgres_facts(url)
    except ValueError:
        # Includes errors of asyncpg, whose texts quote parts of the URL.
        yield _unreadable("store.reachable", "RUNEKEEP_STORE_URL")
        return
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        yield problem(
            "store.reachable",
            f"PostgreSQL: {str(error) or type(error).__name__}",
            "Check host, port, database, user and password of RUNEKEEP_STORE_URL; the database must exist.",
        )
        return
    for check in _of_postgres(facts):
        yield check


def _unreadable(name: str, variable: str) -> Check:
    return problem(
        name,
        f"{variable} cannot be read as a URL",
        "Write special characters of its password in percent notation, such as %2F for /.",
    )


def _of_postgres(facts: PostgresFacts) -> list[Check]:
    found = [ok("store.reachable", f"PostgreSQL {facts.version}, {facts.round_trip * 1000:.1f} ms away")]
    if facts.major < OLDEST_POSTGRES:
        found.append(
            warning(
                "store.version",
                f"PostgreSQL {facts.version} is older than {OLDEST_POSTGRES}, the oldest that was tried",
                "Upgrade PostgreSQL.",
            )
        )
    if facts.read_only:
        found.append(
            problem("store.role", "it takes no writes: a replica, or read only by default", "Name the primary.")
        )
    if facts.lacking:
        what = ", ".join(facts.lacking[:3]) + (f" and {len(facts.lacking) - 3} more" if len(facts.lacking) > 3 else "")
        found.append(
            problem(
                "store.role", f"the role {facts.role} lacks {what}", "Make it the owner of the database, or grant it."
            )
        )
    elif not facts.may_migrate:
        needed_now = facts.schema is None or facts.schema.revision < HEAD
        found.append(
            (problem if needed_now else warning)(
                "store.role",
                f"the role {facts.role} lacks CREATE on the schema, for migrations"
                f"{'' if needed_now else ' of later releases'}",
                "Make it the owner of the database, or grant it.",
            )
        )
    elif not facts.read_only:
        found.append(ok("store.role", f"the role {facts.role} may read, write and migrate"))
    needed = READERS + WRITERS + KEPT_CONNECTIONS
    if facts.connections < needed:
        found.append(
            warning(
                "store.connections",
                f"it takes {facts.connections} connections, and one server holds up to {needed}",
                "Raise max_connections to that many for each server.",
            )
        )
    if facts.encoding != "UTF8":
        found.append(
            problem("store.encoding", f"it is encoded in {facts.encoding}", "Make a database with the encoding UTF8.")
        )
    else:
        found.append(ok("store.encoding", f"UTF8, sorted by {facts.collation}; the store sorts by code points anyway"))
    off = f"the store's clock is {abs(facts.ahead):.1f} s {'ahead of' if facts.ahead > 0 else 'behind'} this machine's"
    if abs(facts.ahead) > CLOCK_SECONDS + facts.round_trip:
        found.append(warning("store.clock", off, "Have both keep time by NTP; of the two the store's decides."))
    else:
        found.append(ok("store.clock", off))
    if facts.lacking and facts.schema is None:
        found.append(skipped("store.schema", "the role may not read it"))
    else:
        found.append(_schema(facts.schema))
    return found


def _schema(schema: Schema | None) -> Check:
    if schema is None:
        return ok("store.schema", "no tables yet; a server makes them at its first start")
    if schema.revision < HEAD:
        return warning(
            "store.schema",
            f"{schema.revision}, from a release before; a server brings it to {HEAD} when it starts",
            "Make a backup first: docs/operate/backup.md.",
        )
    try:
        newer = schema.revision != HEAD and schema.is_served()
    except SchemaTooNew as error:
        return problem("store.schema", str(error), "Start the release that wrote it, or restore a backup.")
    if newer:
        return warning(
            "store.schema",
            f"{schema.revision}, from a newer release, on which servers of this one ({HEAD}) may work",
            "Go on with the upgrade: docs/operate/upgrades.md.",
        )
    return ok("store.schema", f"{HEAD}, that of this release")


async def index(settings: Settings) -> AsyncIterator[Check]:
    options = embedding_options(settings)
    embedder = open_embedder(settings.embedder, threads=settings.embedder_threads, options=options)
    wanted = VectorSpace(embedder.model, embedder.dimension) if embedder is not None else SPARSE_ONLY
    if settings.index_url:
        async for check in _qdrant(settings, wanted):
            yield check
        return
    if holder(settings.data_dir) is not None:
        yield skipped("index.open", _ASKED)
        return
    directory = DataDirectory(settings.data_dir).index
    try:
        vectors = edge_vectors(directory)
    except PermissionError as error:
        yield problem("index.open", f"{directory}: {error.strerror}", AS_THE_SERVERS_USER)
        return
    except (OSError, ValueError, KeyError, TypeError):
        yield problem("index.open", f"{directory} cannot be read", "Make it anew: `runekeep index rebuild`.")
        return
    if vectors is None:
        yield ok("index.open", "there is none yet; a server makes it from the store")
        return
    for check in _vectors(vectors, wanted, settings):
        yield check
    try:
        points = await edge_points(directory, vectors)
    except (IndexUnavailable, IndexMismatch, ValueError) as error:
        yield problem("index.open", str(error), "Make it anew: `runekeep index rebuild`.")
    else:
        yield ok("index.open", f"embedded, {points} points")


async def _qdrant(settings: Settings, wanted: VectorSpace) -> AsyncIterator[Check]:
    # Imported here because it loads Qdrant's client.
    from runekeep_storage.index.qdrant_nodes import INT8_VERSION, MIN_VERSION, is_old, parse_addresses

    urls = settings.index_url.split(",")
    if not all(is_readable(url.strip(), of_one_host=True) for url in urls):
        yield _unreadable("index.open", "RUNEKEEP_INDEX_URL")
        return
    there: QdrantFacts | None = None
    away: list[str] = []
    for address in parse_addresses(settings.index_url):
        node = "Qdrant" if len(urls) == 1 else f"Qdrant at {address.name}"
        try:
            facts = await qdrant_facts(address, settings.index_api_key.get_secret_value() or None)
        except Exception as error:  # The client's errors have no common base, and it passes on those of two transports.
            away.append(f"{node}: {getattr(error, 'source', None) or str(error) or type(error).__name__}")
            continue
        there = there or facts
        if is_old(facts.version):
            oldest = ".".join(map(str, MIN_VERSION))
            yield problem(
                "index.version",
                f"{node} {facts.version} is older than {oldest}",
                f"Upgrade Qdrant to {oldest} or newer; servers refuse an older one.",
            )
        elif settings.index_datatype == "int8" and is_old(facts.version, INT8_VERSION):
            yield problem(
                "index.version",
                f"{node} {facts.version} cannot hold vectors as int8",
                f"Upgrade Qdrant to {'.'.join(map(str, INT8_VERSION))} or newer, or set RUNEKEEP_INDEX_DATATYPE to"
                " float16 or float32.",
            )
    advice = "Check RUNEKEEP_INDEX_URL and RUNEKEEP_INDEX_API_KEY, and that the server is up."
    if there is None:
        yield problem("index.open", "; ".join(away), advice)
        return
    for node_away in away:
        yield warning("index.node", f"{node_away}. Calls go to the other nodes.", advice)
    told = f"Qdrant {there.version}".rstrip()
    if there.vectors is None:
        yield ok("index.open", f"{told}; a server makes the collection at its first start")
        return
    yield ok("index.open", f"{told}, {there.points} points")
    for check in _vectors(there.vectors, wanted, settings):
        yield check


def _vectors(held: StoredVectors, wanted: VectorSpace, settings: Settings) -> Iterator[Check]:
    yield _model(tuple(held.names), wanted)
    if not held.dimensions:
        return
    if held.datatype == settings.index_datatype:
        yield ok("index.datatype", f"{held.datatype}, as set")
        return
    yield problem(
        "index.datatype",
        f"it holds its vectors as {held.datatype}, and the server is set to {settings.index_datatype}",
        f"Make the index anew: `runekeep index rebuild`, or set RUNEKEEP_INDEX_DATATYPE={held.datatype}.",
    )


def _model(there: Sequence[VectorSpace], wanted: VectorSpace) -> Check:
    held = " and ".join(map(describe, there))
    if wanted in there:
        more = ", as the embedder makes them" if len(there) == 1 else "; the embedder makes one of both"
        return ok("index.model", f"{held}{more}")
    return problem(
        "index.model",
        f"it holds {held}, and the embedder makes {describe(wanted)}",
        "Set RUNEKEEP_EMBEDDER back, or make the index anew: `runekeep index rebuild`.",
    )


async def blobs(settings: Settings) -> AsyncIterator[Check]:
    if not settings.blob_url and settings.blob_dir is None and not settings.data_dir.exists():
        yield ok("blobs.write", "the folder is made with the data directory")
        return
    try:
        place: Blobs
        if settings.blob_url:
            from runekeep_storage.blobs.object_blobs import ObjectBlobs

            place = ObjectBlobs.at(settings.blob_url)
        else:
            place = FolderBlobs(settings.blob_dir or DataDirectory(settings.data_dir).blobs)
        began = monotonic()
        await asyncio.to_thread(place.probe)
    except (StoreUnavailable, ValueError) as error:
        yield problem(
            "blobs.write", str(error), "Check RUNEKEEP_BLOB_DIR or RUNEKEEP_BLOB_URL, its rights and its keys."
        )
        return
    where = settings.blob_url or settings.blob_dir or DataDirectory(settings.data_dir).blobs
    yield ok("blobs.write", f"{where}: written and removed in {(monotonic() - began) * 1000:.0f} ms")
    if not settings.store_url.startswith(POSTGRES_SCHEMES):
        async for check in _contents(settings, place):
            yield check


async def _contents(settings: Settings, place: Blobs) -> AsyncIterator[Check]:
    """Checks the blobs of an embedded store without a server, as many as can be read in a few seconds."""
    try:
        database = embedded_database(store_options(settings))
    except StartError:
        return
    if not database.exists():
        return
    with held_off(settings.data_dir) as pid:
        if pid is not None:
            yield skipped("blobs.integrity", _ASKED)
            return
        try:
            await asyncio.to_thread(check_log, database)
            if await asyncio.to_thread(sqlite_schema, database) is None:
                return
            facts = await blob_facts(database, place)
        except StoreLost:
            yield skipped("blobs.integrity", "see store.log")
            return
        except (sqlite3.Error, StoreUnavailable) as error:
            yield problem("blobs.integrity", f"they cannot be read: {error}", "See store.reachable and blobs.write.")
            return
    for what, names in (("damaged", facts.damaged), ("missing", facts.missing)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield problem("blobs.integrity", f"{what}: {names[0]}{more}", "Restore them from a backup.")
    if not facts.damaged and not facts.missing:
        rest = "" if facts.whole else ", and no fault found in the seconds that were given; there are more"
        yield ok("blobs.integrity", f"{facts.read} read{rest or ', all whole'}")


_QUERY = "What does the user drink?"
_EMBEDDER_ADVICE = {
    "minilm": "Run pip install --force-reinstall runekeep.",
    "bilingual": "Run pip install --force-reinstall 'runekeep[bilingual]'.",
    "fastembed": "Run pip install 'runekeep[fastembed]', and check RUNEKEEP_EMBEDDING__MODEL, __PATH and __DIMENSION.",
    "openai": "Check RUNEKEEP_EMBEDDING__URL, its model, dimension and fields, and RUNEKEEP_EMBEDDER_API_KEY.",
}


def _advice(embedder: str) -> str:
    return " ".join(_EMBEDDER_ADVICE[one] for one in embedder.split("+"))


async def embedder(settings: Settings) -> AsyncIterator[Check]:
    options = embedding_options(settings)
    if options.by_account and "openai" in settings.embedder.split("+"):
        for check in await _embedders_by_account(options):
            yield check
        if not options.url:
            return
    options = replace(options, by_account={})
    opened = open_embedder(settings.embedder, threads=settings.embedder_threads, options=options)
    if opened is None:
        yield warning("embedder.loads", "`none`: search goes by words alone", "Set RUNEKEEP_EMBEDDER for meaning too.")
        return
    try:
        began = monotonic()
        await opened.warm()
        loaded = monotonic()
        await opened.embed([_QUERY], query=True)
        ended = monotonic()
    except EmbedderUnavailable as error:
        yield problem("embedder.loads", str(error), _advice(settings.embedder))
        return
    finally:
        await opened.close()
    yield ok(
        "embedder.loads",
        f"{settings.embedder}, loaded in {loaded - began:.1f} s; one text takes {(ended - loaded) * 1000:.0f} ms",
    )


async def _embedders_by_account(options: EmbeddingOptions) -> list[Check]:
    """Checks the endpoint of each account, and that it serves the same model as the default one, if that answers."""
    known = KnownVector(None, name_of_vectors(options))
    shared = known if await _answers(options, known) else None
    return await asyncio.gather(*(_of_account(account, one, shared) for account, one in options.by_account.items()))


async def _of_account(account: str, options: EmbeddingOptions, known: KnownVector | None) -> Check:
    """`known`: the vector of the default endpoint; None if that does not answer."""
    name = f"embedder.account.{account}"
    opened = RemoteEmbedder(options, known)
    try:
        # An endpoint that has to load its model first is slow once only, and is not judged by that.
        await opened.warm()
        began = monotonic()
        await opened.embed([_QUERY], query=True, space=Space(account, ""))
        seconds = monotonic() - began
    except EmbedderUnavailable as error:
        return problem(name, str(error), f"Check account_endpoints.{account}.embedding, its url and key.")
    finally:
        await opened.close()
    compared = "is that of the default endpoint"
    if known is None:
        compared = "was not compared, because the default endpoint does not answer"
    return ok(name, f"its endpoint answers, its model {compared}; one text takes {seconds * 1000:.0f} ms")


async def _answers(options: EmbeddingOptions, known: KnownVector) -> bool:
    """Returns whether the default endpoint answers. Its first vector is kept in `known`."""
    opened = RemoteEmbedder(options, known)
    try:
        await opened.warm()
    except EmbedderUnavailable:
        return False
    finally:
        await opened.close()
    return True
