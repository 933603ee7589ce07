"""The index on a Qdrant server or cluster, which several servers may share.

It needs Qdrant 1.19 or newer, which keeps collection metadata and limits IDF to a filter; older versions are refused. A
batch of points is atomic only within a shard. Every write may be repeated.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import ceil
from typing import Any
from uuid import UUID, uuid4

import grpc
import structlog
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from runekeep_storage import deadline
from runekeep_storage.embedders.vectors import from_bytes
from runekeep_storage.index import payload as shape
from runekeep_storage.index import telemetry
from runekeep_storage.index.base import (
    Hit,
    IndexHits,
    IndexMismatch,
    IndexPoint,
    IndexQuery,
    IndexTooOld,
    IndexUnavailable,
    VectorDatatype,
    VectorSpace,
    check_dimension,
)
from runekeep_storage.index.qdrant_nodes import INT8_VERSION, MIN_VERSION, QdrantNodes, is_old
from runekeep_storage.index.sparse import SparseVector
from runekeep_storage.index.stored_vectors import StoredVectors

COLLECTION = "runekeep"
"""Name of the collection. The first server that finds none creates it."""
_MARK_ID = str(UUID(int=1))
"""Id of the point that holds the mark. The point has no tenant, so no search finds it. Ids of other points are random
or digests."""
_MARK = "store_mark"
ALL_POINTS = models.Filter(must_not=[models.HasIdCondition(has_id=[_MARK_ID])])
"""Filter for the points of all tenants, without the mark."""
_DATATYPES = {
    VectorDatatype.FLOAT32: models.Datatype.FLOAT32,
    VectorDatatype.FLOAT16: models.Datatype.FLOAT16,
    VectorDatatype.INT8: models.Datatype.TURBO8,
}
# Limits the size of a request: a gRPC message must not grow without bound.
_BATCH_POINTS = 256
_LAST_ID = UUID(int=2**128 - 1)

_log = structlog.get_logger(__name__)


class QdrantIndex:
    """A `VectorIndex` in one collection of a Qdrant server.

    `url`: see `qdrant_nodes.parse_addresses`. `datatype`: how it holds dense vectors. `timeout`: deadline of a call in
    whole seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        collection: str = COLLECTION,
        api_key: str | None = None,
        datatype: VectorDatatype = VectorDatatype.FLOAT32,
        timeout: int = 10,
    ) -> None:
        self._nodes = QdrantNodes(url, api_key, timeout)
        self._datatype = datatype
        self._collection = collection
        self._timeout = timeout
        self._spaces: tuple[VectorSpace, ...] = ()
        self._vectors = StoredVectors({})

    async def open(self, space: VectorSpace, other: VectorSpace | None = None) -> str:
        spaces = (space, other) if other is not None else (space,)
        try:
            with telemetry.index_call("open"):
                async with _translated():
                    await self._check_version()
                    if not await self._exists():
                        await self._create(spaces)
                    id, vectors = await self._check(space)
                    if other is not None and other not in vectors.names:
                        id, vectors = await self._add_vectors(id, vectors.with_space(other), other)
                    # Also for an existing collection: its creator may have died between creating it and this.
                    await self._create_payload_indexes()
        except BaseException:
            self._spaces = ()
            raise
        self._spaces, self._vectors = spaces, vectors
        return id

    async def drop_vectors(self, model: str) -> None:
        spaces = self._opened()
        if any(model == space.model for space in spaces):
            raise ValueError(f"the index is open for vectors of model {model!r}")
        async with _translated():
            id, vectors = await self._check(spaces[0])
            name = vectors.named(model)
            if name is None:
                return
            if name in vectors.dimensions:
                await self._repeatable(lambda client: client.delete_vector_name(self._collection, name))
            await self._record(vectors.without(name), id)

    async def _add_vectors(self, id: str, vectors: StoredVectors, space: VectorSpace) -> tuple[str, StoredVectors]:
        """Adds vectors to the collection; other servers may do the same at the same time."""
        params = models.DenseVectorNameConfig(
            dense=models.DenseVectorConfig(
                size=space.dimension,
                distance=models.Distance.COSINE,
                datatype=models.VectorStorageDatatype(_DATATYPES[self._datatype].value),
            )
        )
        name = vectors.names[space]
        await self._repeatable(lambda client: client.create_vector_name(self._collection, name, params))
        # After the vectors: whoever reads this may write them.
        await self._record(vectors, id)
        return await self._check(space)

    async def _record(self, vectors: StoredVectors, id: str) -> None:
        # Whole, because releases differ in whether they replace what is there.
        metadata = {**vectors.metadata, "id": id}
        await self._nodes.ask(lambda client: client.update_collection(self._collection, metadata=metadata))

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        spaces = self._opened()
        for point in points:
            for model, vector in point.vectors.items():
                check_dimension(vector, model, spaces)
        # Of two points with one id the later wins, whatever the server would do with both in one batch.
        rows = [self._struct(point) for point in {point.id: point for point in points}.values()]
        with telemetry.index_call("upsert"):
            async with _translated():
                for start in range(0, len(rows), _BATCH_POINTS):
                    batch = rows[start : start + _BATCH_POINTS]
                    await self._nodes.ask(partial(_upsert, self._collection, batch))

    async def delete(self, ids: Sequence[str]) -> None:
        self._opened()
        if not ids:
            return
        with telemetry.index_call("delete"):
            async with _translated():
                selected = models.PointIdsList(points=list(ids))
                await self._nodes.ask(lambda client: client.delete(self._collection, selected, wait=True))

    async def delete_space(self, account: str, user: str) -> None:
        self._opened()
        tenant = models.FilterSelector(filter=_filter([shape.tenant_condition(account, user)]))
        async with _translated():
            await self._nodes.ask(lambda client: client.delete(self._collection, tenant, wait=True))

    async def query(self, query: IndexQuery) -> IndexHits:
        spaces = self._opened()
        check_dimension(query.dense, query.model, spaces, of_query=True)
        legs: dict[str, models.QueryRequest] = {}
        if query.dense is not None:
            name = self._vectors.named(query.model or spaces[0].model)
            if name is None:
                raise IndexUnavailable(f"the index holds no vectors of model {query.model!r}")
            legs["dense"] = _nearest(query, from_bytes(query.dense), name, None)
        if query.sparse is not None and query.sparse.indices:
            vector = models.SparseVector(indices=list(query.sparse.indices), values=list(query.sparse.values))
            # IDF is counted within the tenant, so that other users' words neither help nor leak.
            tenant = _filter([shape.tenant_condition(query.account, query.user)])
            scoped = models.SearchParams(idf=models.IdfCorpusParams(corpus=tenant))
            legs["sparse"] = _nearest(query, vector, shape.SPARSE, scoped)
        if not legs:
            return IndexHits()
        with telemetry.index_call("query"):
            async with _translated():
                answers = await self._nodes.ask(
                    lambda client: client.query_batch_points(
                        self._collection, list(legs.values()), timeout=self._seconds_left()
                    )
                )
            before = await self._written_before([point for answer in answers for point in answer.points])
        asked = {"sparse": query.sparse}
        return IndexHits(
            **{leg: _hits(answer.points, before, asked.get(leg)) for leg, answer in zip(legs, answers, strict=True)}
        )

    async def _written_before(self, found: Sequence[models.ScoredPoint]) -> dict[str, str]:
        """Returns what points written by the release before hold in place of HIT, by point id; points that are gone by
        now are left out."""
        lacking = shape.lacking(found)
        if not lacking:
            return {}
        async with _translated():
            records = await self._nodes.ask(
                lambda client: client.retrieve(
                    self._collection,
                    lacking,
                    with_payload=[shape.HIT, *shape.HIT_FIELDS_BEFORE],
                    with_vectors=False,
                    timeout=self._seconds_left(),
                )
            )
        return {str(record.id): shape.packed_of(record.id, record.payload or {}) for record in records}

    async def list_ids(self, account: str, user: str, *, after: str | None = None, limit: int = 1000) -> list[str]:
        self._opened()
        start: str | None = None
        if after is not None:
            if UUID(after) == _LAST_ID:
                return []
            start = str(UUID(int=UUID(after).int + 1))
        async with _translated():
            records, _ = await self._nodes.ask(
                lambda client: client.scroll(
                    self._collection,
                    scroll_filter=_filter([shape.tenant_condition(account, user)]),
                    offset=start,
                    limit=limit,
                    with_payload=False,
                    with_vectors=False,
                    timeout=self._seconds_left(),
                )
            )
        return sorted(str(record.id) for record in records)

    async def count(self, account: str, user: str) -> int:
        return await self._count(_filter([shape.tenant_condition(account, user)]))

    async def count_all(self) -> int:
        return await self._count(ALL_POINTS)

    async def clear(self) -> None:
        self._spaces = ()
        async with _translated():
            if await self._exists():
                await self._nodes.ask(lambda client: client.delete_collection(self._collection))

    async def flush(self) -> None:
        """Does nothing: the server manages its own disk."""

    async def purge(self) -> None:
        """Does nothing: the server's optimizer decides, and cannot be asked."""

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        return (
            "Qdrant keeps removed points until its optimiser rewrites their segments: lower the collection's"
            " deleted_threshold for a while, or rebuild the index with `runekeep index rebuild`.",
            "Snapshots and backups of the Qdrant server from before the erasure hold what was erased.",
        )

    @property
    def place(self) -> str:
        return f"collection {self._collection!r} of Qdrant at {', '.join(self._nodes.names)}"

    async def read_mark(self) -> str:
        async with _translated():
            if not await self._exists():
                return ""
            found = await self._nodes.ask(
                lambda client: client.retrieve(
                    self._collection, [_MARK_ID], with_payload=[_MARK], with_vectors=False, timeout=self._seconds_left()
                )
            )
        return str((found[0].payload or {}).get(_MARK, "")) if found else ""

    async def write_mark(self, text: str) -> bool:
        # It has the same form as other points.
        vector: dict[str, Any] = {shape.SPARSE: models.SparseVector(indices=[0], values=[1.0])}
        mark = models.PointStruct(id=_MARK_ID, vector=vector, payload={_MARK: text})
        async with _translated():
            try:
                await self._nodes.ask(partial(_upsert, self._collection, [mark]))
            except (grpc.aio.AioRpcError, UnexpectedResponse):
                if await self._exists():
                    raise
                return False
        return True

    async def healthy(self) -> bool:
        try:
            async with _translated():
                return await self._exists()
        except IndexUnavailable as error:
            _log.warning("index_unhealthy", error=str(error))
            return False

    async def close(self) -> None:
        self._spaces = ()
        await self._nodes.close()

    def _opened(self) -> tuple[VectorSpace, ...]:
        if not self._spaces:
            raise IndexUnavailable("the index is not open")
        return self._spaces

    def _struct(self, point: IndexPoint) -> models.PointStruct:
        sparse = models.SparseVector(indices=list(point.sparse.indices), values=list(point.sparse.values))
        vectors: dict[str, Any] = {shape.SPARSE: sparse}
        dense = self._vectors.by_name(point.vectors, self._opened()[0])
        vectors |= {name: from_bytes(vector) for name, vector in dense.items()}
        # During a rolling upgrade, servers of the release before may search the same collection.
        payload = {**shape.payload_of(point), **shape.fields_before(point)}
        return models.PointStruct(id=point.id, vector=vectors, payload=payload)

    async def _count(self, conditions: models.Filter) -> int:
        self._opened()
        async with _translated():
            counted = await self._nodes.ask(
                lambda client: client.count(
                    self._collection, count_filter=conditions, exact=True, timeout=self._seconds_left()
                )
            )
            return counted.count

    def _seconds_left(self) -> int:
        """Returns the time that the current call has left for a read, in whole seconds, the unit of Qdrant. The server
        then stops work that nobody waits for."""
        return max(ceil(deadline.remaining(self._timeout)), 1)

    async def _create(self, spaces: Sequence[VectorSpace]) -> None:
        made = StoredVectors.of_new(self._datatype, *spaces)
        datatype = _DATATYPES[self._datatype]
        dense = {
            name: models.VectorParams(size=size, distance=models.Distance.COSINE, datatype=datatype)
            for name, size in made.dimensions.items()
        }
        try:
            await self._nodes.ask(
                lambda client: client.create_collection(
                    self._collection,
                    vectors_config=dense,
                    sparse_vectors_config={shape.SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                    # No graph over all tenants (m=0), but one inside each tenant that is large enough (payload_m),
                    # because every search names its tenant.
                    hnsw_config=models.HnswConfigDiff(m=0, payload_m=16),
                    metadata={**made.metadata, "id": uuid4().hex},
                )
            )
        except (grpc.aio.AioRpcError, UnexpectedResponse):
            # Another server may have created it at the same moment; `_check` finds out whether it is the right one.
            if not await self._exists():
                raise

    async def _exists(self) -> bool:
        return await self._nodes.ask(lambda client: client.collection_exists(self._collection))

    async def _check_version(self) -> None:
        version = (await self._nodes.ask(lambda client: client.info())).version
        if is_old(version):
            raise IndexTooOld(
                f"Qdrant {version} is too old: it does not keep words of tenants apart. Upgrade it to "
                f"{'.'.join(map(str, MIN_VERSION))} or newer."
            )
        if self._datatype is VectorDatatype.INT8 and is_old(version, INT8_VERSION):
            raise IndexTooOld(
                f"Qdrant {version} cannot hold vectors as int8. Upgrade it to {'.'.join(map(str, INT8_VERSION))} or "
                "newer, or set index_datatype (RUNEKEEP_INDEX_DATATYPE) to float16 or float32."
            )

    async def _repeatable(self, ask: Callable[[AsyncQdrantClient], Awaitable[Any]]) -> None:
        """Adds or deletes vectors. If another server did so at the same moment, the refusal does no harm: whoever needs
        vectors that are missing gets an error from Qdrant."""
        try:
            await self._nodes.ask(ask)
        except (grpc.aio.AioRpcError, UnexpectedResponse) as error:
            _log.info("index_vectors_not_changed", error=type(error).__name__)
            if not _is_refusal(error):
                raise

    async def _check(self, space: VectorSpace) -> tuple[str, StoredVectors]:
        """Checks the collection. Returns its id and what it records of its vectors."""
        found = await self._nodes.ask(lambda client: client.get_collection(self._collection))
        metadata = found.config.metadata or {}
        if not {"model", "dimension", "id"} <= metadata.keys():
            raise IndexMismatch(
                f"the collection {self._collection!r} does not say which vectors it holds: it was not made by Runekeep"
            )
        stored = StoredVectors.of_metadata(metadata).checked(space, self._datatype)
        return str(metadata["id"]), stored

    async def _create_payload_indexes(self) -> None:
        keyword = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
        tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        time = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
        schemas: dict[str, models.KeywordIndexParams | models.IntegerIndexParams]
        schemas = {shape.TENANT: tenant, **dict.fromkeys(shape.KEYWORDS, keyword), shape.TIME: time}
        for field, schema in schemas.items():
            await self._nodes.ask(partial(_create_payload_index, self._collection, field, schema))


def _is_refusal(error: grpc.aio.AioRpcError | UnexpectedResponse) -> bool:
    """Returns whether Qdrant refused the request itself, so that a repeat would be refused too."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS)
    return error.status_code in (400, 409)


async def _upsert(collection: str, points: list[models.PointStruct], client: AsyncQdrantClient) -> None:
    await client.upsert(collection, points, wait=True)


async def _create_payload_index(collection: str, field: str, schema: Any, client: AsyncQdrantClient) -> None:
    await client.create_payload_index(collection, field, field_schema=schema, wait=True)


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Turns every failure of the client or the server into IndexUnavailable."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise IndexUnavailable(f"Qdrant answered {error.code().name}: {error.details()}") from error
    except (ApiException, QdrantException, OSError) as error:
        # A REST call that never reached the server has no message of its own, only a source.
        raise IndexUnavailable(f"Qdrant failed: {getattr(error, 'source', error)}") from error


def _nearest(query: IndexQuery, vector: Any, using: str, params: models.SearchParams | None) -> models.QueryRequest:
    return models.QueryRequest(
        query=models.NearestQuery(nearest=vector),
        using=using,
        filter=_filter(shape.conditions_of(query)),
        params=params,
        limit=query.limit_per_leg,
        with_payload=[shape.HIT],
        with_vector=[shape.SPARSE] if using == shape.SPARSE else False,
    )


def _filter(conditions: Sequence[shape.Condition]) -> models.Filter:
    return models.Filter(must=[_condition(condition) for condition in conditions])


def _condition(condition: shape.Condition) -> models.FieldCondition:
    if isinstance(condition, shape.AnyOf):
        return models.FieldCondition(key=condition.field, match=models.MatchAny(any=list(condition.values)))
    return models.FieldCondition(key=condition.field, range=models.Range(gte=condition.start, lt=condition.end))


def _hits(
    answered: Sequence[models.ScoredPoint], before: Mapping[str, str], asked: SparseVector | None
) -> tuple[Hit, ...]:
    told = [(point, (point.payload or {}).get(shape.HIT) or before.get(str(point.id))) for point in answered]
    # Missing points were removed between the two answers.
    found = [point for point, packed in told if packed is not None]
    return shape.hits_of(
        [point.score for point in found],
        [packed for _, packed in told if packed is not None],
        asked,
        [_sparse(point.vector) for point in found] if asked is not None else [],
    )


def _sparse(vector: Any) -> Any:
    return vector.get(shape.SPARSE) if isinstance(vector, dict) else None
