"""A double of a Qdrant server, for testing the client's side of the wire where no server can be had.

It speaks Qdrant's own gRPC protocol on a real socket, through the servicer classes that ship with qdrant-client, and
keeps its points in Qdrant Edge, the same engine a server runs. So it proves that our calls are well formed, that
filters and scores mean the same on both sides, and that failures come back as they should. It proves nothing about
sharding, replication, consistency between nodes, optimizers at work, REST, or what a server does with requests that
this double reads more kindly. It knows only the requests that the driver makes.
"""

from pathlib import Path
from typing import Any

import grpc
import qdrant_edge as edge
from qdrant_client import grpc as wire
from qdrant_client.conversions.conversion import grpc_to_payload, payload_to_grpc

_DATATYPES = {
    wire.Datatype.Default: edge.VectorStorageDatatype.Float32,
    wire.Datatype.Float32: edge.VectorStorageDatatype.Float32,
    wire.Datatype.Float16: edge.VectorStorageDatatype.Float16,
    wire.Datatype.Turbo8: edge.VectorStorageDatatype.Turbo8,
}


class Collection:
    def __init__(self, shard: Any, created: wire.CreateCollection) -> None:
        self.shard = shard
        self.metadata = dict(created.metadata)


class QdrantDouble(wire.QdrantServicer, wire.CollectionsServicer, wire.PointsServicer):
    """Serves on a free port of 127.0.0.1 between `start` and `stop`; what it holds lives in `directory`."""

    def __init__(
        self,
        directory: Path,
        api_key: str | None = None,
        *,
        version: str = "1.19.0",
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._directory = directory
        self._version = version
        self._credentials = credentials
        self._api_key = api_key
        self._collections: dict[str, Collection] = {}
        self._made = 0
        self._server: grpc.aio.Server | None = None
        self.port = 0
        self.calls: list[str] = []

    async def start(self) -> None:
        self._server = grpc.aio.server(interceptors=[_Door(self)])
        wire.add_QdrantServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]  # made without types
        wire.add_CollectionsServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]  # made without types
        wire.add_PointsServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]  # made without types
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._credentials)
        await self._server.start()

    async def stop(self) -> None:
        """Take the server off its port; the points stay for the next `start`."""
        assert self._server is not None
        await self._server.stop(None)

    def share(self, other: "QdrantDouble") -> None:
        """Shares the other double's data, like two nodes of a cluster with a copy each."""
        self._collections = other._collections

    def drop(self) -> None:
        """Take all collections away, as somebody with a console would."""
        for collection in self._collections.values():
            collection.shard.close()
        self._collections.clear()

    def admits(self, metadata: tuple[tuple[str, str | bytes], ...]) -> bool:
        return self._api_key is None or ("api-key", self._api_key) in metadata

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        return wire.HealthCheckReply(title="qdrant double", version=self._version)

    async def CollectionExists(self, request: Any, context: Any) -> Any:
        exists = request.collection_name in self._collections
        return wire.CollectionExistsResponse(result=wire.CollectionExists(exists=exists))

    async def Create(self, request: Any, context: Any) -> Any:
        if request.collection_name in self._collections:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"{request.collection_name} already exists")
        self._made += 1
        path = self._directory / f"collection-{self._made}"
        path.mkdir(parents=True)
        dense = {
            name: edge.EdgeVectorParams(params.size, edge.Distance.Cosine, datatype=_DATATYPES[params.datatype])
            for name, params in request.vectors_config.params_map.map.items()
        }
        sparse = {
            name: edge.EdgeSparseVectorParams(
                modifier=edge.Modifier.Idf if params.modifier == wire.Modifier.Idf else None
            )
            for name, params in request.sparse_vectors_config.map.items()
        }
        shard = edge.EdgeShard.create(str(path), edge.EdgeConfig(vectors=dense or None, sparse_vectors=sparse))
        self._collections[request.collection_name] = Collection(shard, request)
        return wire.CollectionOperationResponse(result=True)

    async def Update(self, request: Any, context: Any) -> Any:
        found = await self._collection(request, context)
        for name, value in request.metadata.items():
            found.metadata[name] = value
        return wire.CollectionOperationResponse(result=True)

    async def CreateVectorName(self, request: Any, context: Any) -> Any:
        shard = (await self._collection(request, context)).shard
        params = request.dense_config
        operation = edge.UpdateOperation.create_dense_vector(
            request.vector_name, params.size, edge.Distance.Cosine, datatype=_DATATYPES[params.datatype]
        )
        return await _updated(shard, operation, context)

    async def DeleteVectorName(self, request: Any, context: Any) -> Any:
        shard = (await self._collection(request, context)).shard
        return await _updated(shard, edge.UpdateOperation.delete_vector_name(request.vector_name), context)

    async def Get(self, request: Any, context: Any) -> Any:
        found = await self._collection(request, context)
        # Both services have a method of this name, see `Delete`.
        if isinstance(request, wire.GetPoints):
            fields = list(request.with_payload.include.fields)
            records = found.shard.retrieve([_id(one) for one in request.ids], fields, False)
            return wire.GetResponse(
                result=[
                    wire.RetrievedPoint(id=wire.PointId(uuid=str(one.id)), payload=payload_to_grpc(one.payload))
                    for one in records
                ]
            )
        config = wire.CollectionConfig(
            params=wire.CollectionParams(shard_number=1),
            hnsw_config=wire.HnswConfigDiff(m=0, ef_construct=100, full_scan_threshold=10_000),
            optimizer_config=wire.OptimizersConfigDiff(
                deleted_threshold=0.2, vacuum_min_vector_number=1000, default_segment_number=0, flush_interval_sec=5
            ),
            wal_config=wire.WalConfigDiff(wal_capacity_mb=32, wal_segments_ahead=0),
            metadata=found.metadata,
        )
        info = wire.CollectionInfo(
            status=wire.CollectionStatus.Green,
            optimizer_status=wire.OptimizerStatus(ok=True),
            segments_count=1,
            config=config,
        )
        return wire.GetCollectionInfoResponse(result=info)

    async def Delete(self, request: Any, context: Any) -> Any:
        # Both services have a method of this name; the class has room for one, so the request tells them apart.
        if isinstance(request, wire.DeleteCollection):
            dropped = self._collections.pop(request.collection_name, None)
            if dropped is not None:
                dropped.shard.close()
            return wire.CollectionOperationResponse(result=dropped is not None)
        shard = (await self._collection(request, context)).shard
        if request.points.HasField("filter"):
            operation = edge.UpdateOperation.delete_points_by_filter(_filter(request.points.filter))
        else:
            operation = edge.UpdateOperation.delete_points([_id(one) for one in request.points.points.ids])
        return await _updated(shard, operation, context)

    async def CreateFieldIndex(self, request: Any, context: Any) -> Any:
        shard = (await self._collection(request, context)).shard
        params = request.field_index_params
        schema: Any
        if params.HasField("keyword_index_params"):
            schema = edge.KeywordIndexParams(is_tenant=params.keyword_index_params.is_tenant)
        else:
            numbers = params.integer_index_params
            schema = edge.IntegerIndexParams(lookup=numbers.lookup, range=numbers.range)
        return await _updated(shard, edge.UpdateOperation.create_field_index(request.field_name, schema), context)

    async def Upsert(self, request: Any, context: Any) -> Any:
        shard = (await self._collection(request, context)).shard
        points = [
            edge.Point(
                _id(point.id),
                {name: _vector(vector) for name, vector in point.vectors.vectors.vectors.items()},
                grpc_to_payload(point.payload),
            )
            for point in request.points
        ]
        return await _updated(shard, edge.UpdateOperation.upsert_points(points), context)

    async def QueryBatch(self, request: Any, context: Any) -> Any:
        shard = (await self._collection(request, context)).shard
        answers = []
        for query in request.query_points:
            idf = None
            if query.params.HasField("idf"):
                idf = edge.IdfParams(corpus=_filter(query.params.idf.corpus))
            found = shard.query(
                edge.QueryRequest(
                    limit=query.limit,
                    query=edge.Query.Nearest(_vector(query.query.nearest), using=query.using),
                    filter=_filter(query.filter),
                    params=edge.SearchParams(idf=idf),
                    with_payload=list(query.with_payload.include.fields),
                    with_vector=list(query.with_vectors.include.names),
                )
            )
            scored = [
                wire.ScoredPoint(
                    id=wire.PointId(uuid=str(point.id)),
                    score=point.score,
                    version=point.version,
                    payload=payload_to_grpc(point.payload),
                    vectors=_vectors(point.vector),
                )
                for point in found
            ]
            answers.append(wire.BatchResult(result=scored))
        return wire.QueryBatchResponse(result=answers)

    async def Scroll(self, request: Any, context: Any) -> Any:
        shard = (await self._collection(request, context)).shard
        records, following = shard.scroll(
            edge.ScrollRequest(
                offset=_id(request.offset) if request.HasField("offset") else None,
                limit=request.limit,
                filter=_filter(request.filter),
                with_payload=False,
                with_vector=False,
            )
        )
        answer = wire.ScrollResponse(
            result=[wire.RetrievedPoint(id=wire.PointId(uuid=str(record.id))) for record in records]
        )
        if following is not None:
            answer.next_page_offset.uuid = str(following)
        return answer

    async def Count(self, request: Any, context: Any) -> Any:
        shard = (await self._collection(request, context)).shard
        chosen = _filter(request.filter) if request.HasField("filter") else None
        count = shard.count(edge.CountRequest(exact=request.exact, filter=chosen))
        return wire.CountResponse(result=wire.CountResult(count=count))

    async def _collection(self, request: Any, context: Any) -> Collection:
        found = self._collections.get(request.collection_name)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"collection {request.collection_name} does not exist")
        assert found is not None
        return found


class _Door(grpc.aio.ServerInterceptor):
    """Notes each call and turns away those without the key."""

    def __init__(self, double: QdrantDouble) -> None:
        self._double = double

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        self._double.calls.append(details.method)
        if self._double.admits(details.invocation_metadata):
            return await continuation(details)

        async def refuse(request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Invalid API key or JWT")

        return grpc.unary_unary_rpc_method_handler(refuse)


async def _updated(shard: Any, operation: Any, context: Any) -> Any:
    try:
        shard.update(operation)
    except Exception as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    return wire.PointsOperationResponse(result=wire.UpdateResult(status=wire.UpdateStatus.Completed))


def _vectors(held: dict[str, Any]) -> Any:
    """Those that were asked for, as a server gives them."""
    named = {
        name: wire.VectorOutput(sparse=wire.SparseVector(indices=vector.indices, values=vector.values))
        for name, vector in held.items()
    }
    return wire.VectorsOutput(vectors=wire.NamedVectorsOutput(vectors=named))


def _id(point_id: Any) -> str:
    return str(point_id.uuid)


def _vector(vector: Any) -> Any:
    if vector.HasField("sparse"):
        return edge.SparseVector(list(vector.sparse.indices), list(vector.sparse.values))
    return list(vector.dense.data)


def _filter(given: Any) -> Any:
    if given.should or given.HasField("min_should"):
        raise NotImplementedError("the double knows only filters whose conditions must all hold, or none of them")
    return edge.Filter(
        must=[_condition(condition.field) for condition in given.must],
        must_not=[edge.HasIdCondition({_id(one) for one in condition.has_id.has_id}) for condition in given.must_not],
    )


def _condition(field: Any) -> Any:
    if field.HasField("range"):
        bounds = {name.name: value for name, value in field.range.ListFields()}
        return edge.FieldCondition(field.key, range=edge.RangeFloat(**bounds))
    if field.match.WhichOneof("match_value") != "keywords":
        raise NotImplementedError(f"the double does not know the condition {field}")
    return edge.FieldCondition(field.key, match=edge.MatchAny(list(field.match.keywords.strings)))
