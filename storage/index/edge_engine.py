"""Qdrant Edge behind the index's own words. Blocking, and holding the GIL: runs in the index process only."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import qdrant_edge as edge

from storage.embedders.vectors import from_bytes
from storage.index import payload as shape
from storage.index.base import (
    IndexHits,
    IndexPoint,
    IndexQuery,
    IndexUnavailable,
    VectorSpace,
    describe,
    mismatch,
)

_LAST_ID = UUID(int=2**128 - 1)


class EdgeEngine:
    """One shard in a directory: `shard/` is Edge's own, `space.json` names the vectors it holds and its id.

    `space.json` is written after the shard was made and removed before the shard is dropped, so a shard without it is
    unfinished and is made anew, and so is one whose files are gone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shard_path = directory / "shard"
        self._space_path = directory / "space.json"
        self._shard: Any = None
        self.dirty = False
        """Whether something was written since the last flush."""

    def open(self, space: VectorSpace) -> str:
        self._let_go()
        if self._space_path.exists() and self._shard_path.exists():
            told = json.loads(self._space_path.read_text("utf-8"))
            stored = VectorSpace(told["model"], told["dimension"])
            if stored != space:
                raise mismatch(describe(stored), space)
            self._shard = edge.EdgeShard.load(str(self._shard_path), None)
            # A process that died may have left writes that are not on disk; the next flush must not pass over them.
            self.dirty = True
            return str(told["id"])
        self._space_path.unlink(missing_ok=True)
        shutil.rmtree(self._shard_path, ignore_errors=True)
        self._shard_path.mkdir(parents=True)
        self._shard = edge.EdgeShard.create(str(self._shard_path), _config(space))
        self._create_payload_indexes()
        self._shard.flush()
        id = uuid4().hex
        made = {"model": space.model, "dimension": space.dimension, "id": id}
        _write_durably(self._space_path, json.dumps(made))
        return id

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        rows = [
            edge.Point(point.id, _vectors(point), shape.payload_of(point))
            # Edge does not say which of two points with one id wins: keep the later.
            for point in {point.id: point for point in points}.values()
        ]
        self._update(edge.UpdateOperation.upsert_points(rows))

    def delete(self, ids: Sequence[str]) -> None:
        self._update(edge.UpdateOperation.delete_points(list(ids)))

    def delete_space(self, account: str, user: str) -> None:
        tenant = _filter([shape.tenant_condition(account, user)])
        self._update(edge.UpdateOperation.delete_points_by_filter(tenant))

    def query(self, query: IndexQuery) -> IndexHits:
        conditions = _filter(shape.conditions_of(query))
        dense: list[Any] = []
        sparse: list[Any] = []
        if query.dense is not None:
            dense = self._nearest(
                from_bytes(query.dense), shape.DENSE, conditions, query.limit_per_leg, edge.SearchParams()
            )
        if query.sparse is not None and query.sparse.indices:
            # The rarity of a term is counted within the tenant: other users' words neither help nor leak.
            tenant = _filter([shape.tenant_condition(query.account, query.user)])
            scoped = edge.SearchParams(idf=edge.IdfParams(corpus=tenant))
            vector = edge.SparseVector(list(query.sparse.indices), list(query.sparse.values))
            sparse = self._nearest(vector, shape.SPARSE, conditions, query.limit_per_leg, scoped)
        return IndexHits(dense=_hits(dense), sparse=_hits(sparse))

    def list_ids(self, account: str, user: str, after: str | None, limit: int) -> list[str]:
        start: UUID | None = None
        if after is not None:
            if UUID(after) == _LAST_ID:
                return []
            start = UUID(int=UUID(after).int + 1)
        records, _ = self._opened().scroll(
            edge.ScrollRequest(
                offset=start,
                limit=limit,
                filter=_filter([shape.tenant_condition(account, user)]),
                with_payload=False,
                with_vector=False,
            )
        )
        return sorted(str(record.id) for record in records)

    def count(self, account: str, user: str) -> int:
        return self._count(_filter([shape.tenant_condition(account, user)]))

    def count_all(self) -> int:
        return self._count(None)

    def clear(self) -> None:
        self._let_go()
        self._space_path.unlink(missing_ok=True)
        if self._shard_path.exists():
            shutil.rmtree(self._shard_path)

    def flush(self) -> None:
        if self._shard is not None and self.dirty:
            self._shard.flush()
            self.dirty = False

    def close(self) -> None:
        if self._shard is not None:
            self.flush()
            self._shard.close()
            self._shard = None

    def _let_go(self) -> None:
        """Close what is open, to open what is there now: its files may have been deleted under it."""
        try:
            self.close()
        except Exception as error:
            print(f"the index could not be closed and is given up: {error}", file=sys.stderr)
            self._shard = None

    def _opened(self) -> Any:
        if self._shard is None:
            raise IndexUnavailable("the index is not open")
        return self._shard

    def _update(self, operation: Any) -> None:
        shard = self._opened()
        self.dirty = True
        shard.update(operation)

    def _count(self, conditions: Any) -> int:
        return int(self._opened().count(edge.CountRequest(exact=True, filter=conditions)))

    def _nearest(self, vector: Any, using: str, conditions: Any, limit: int, params: Any) -> list[Any]:
        found: list[Any] = self._opened().query(
            edge.QueryRequest(
                limit=limit,
                query=edge.Query.Nearest(vector, using=using),
                filter=conditions,
                params=params,
                with_payload=list(shape.HIT_FIELDS),
                with_vector=False,
            )
        )
        return found

    def _create_payload_indexes(self) -> None:
        create = edge.UpdateOperation.create_field_index
        self._shard.update(create(shape.TENANT, edge.KeywordIndexParams(is_tenant=True)))
        for field in shape.KEYWORDS:
            self._shard.update(create(field, edge.PayloadSchemaType.Keyword))
        self._shard.update(create(shape.TIME, edge.IntegerIndexParams(lookup=False, range=True)))


def _config(space: VectorSpace) -> Any:
    # No graph over all tenants (m=0), one inside each tenant that is large enough (payload_m): every search
    # names its tenant.
    graph = edge.HnswIndexConfig(m=0, ef_construct=100, full_scan_threshold=10_000, payload_m=16)
    dense = {shape.DENSE: edge.EdgeVectorParams(space.dimension, edge.Distance.Cosine)} if space.dimension else None
    sparse = {shape.SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
    return edge.EdgeConfig(vectors=dense, sparse_vectors=sparse, hnsw_config=graph)


def _vectors(point: IndexPoint) -> Any:
    vectors: dict[str, Any] = {shape.SPARSE: edge.SparseVector(list(point.sparse.indices), list(point.sparse.values))}
    if point.dense is not None:
        vectors[shape.DENSE] = from_bytes(point.dense)
    return vectors


def _filter(conditions: Sequence[shape.Condition]) -> Any:
    return edge.Filter(must=[_condition(condition) for condition in conditions])


def _condition(condition: shape.Condition) -> Any:
    if isinstance(condition, shape.AnyOf):
        return edge.FieldCondition(condition.field, match=edge.MatchAny(list(condition.values)))
    return edge.FieldCondition(condition.field, range=edge.RangeFloat(gte=condition.start, lt=condition.end))


def _hits(found: Sequence[Any]) -> tuple[Any, ...]:
    return shape.ranked(shape.hit_of(point.id, point.score, point.payload) for point in found)


def _write_durably(path: Path, text: str) -> None:
    """Replace a file so that after a crash it is the old one or the new one, whole."""
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
