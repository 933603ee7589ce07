"""Adapts Qdrant Edge to the interface of the index. It blocks and holds the GIL, so it runs in the index process
only."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import qdrant_edge as edge

from runekeep_storage.embedders.vectors import from_bytes
from runekeep_storage.index import payload as shape
from runekeep_storage.index.base import (
    Hit,
    IndexHits,
    IndexPoint,
    IndexQuery,
    IndexUnavailable,
    VectorDatatype,
    VectorSpace,
)
from runekeep_storage.index.edge_copy import ShardCopy
from runekeep_storage.index.sparse import SparseVector
from runekeep_storage.index.stored_vectors import StoredVectors

_LAST_ID = UUID(int=2**128 - 1)
_FIRST = "shard"
"""Name of a shard's directory. Copies add a random suffix."""
_PLACES, _PLACE_BYTES = "mutable_id_tracker.versions", 8
"""Edge's file in a segment that holds one number for each slot ever used in it, and the size of such a number in
bytes."""
_DATATYPES: dict[str, Any] = {
    VectorDatatype.FLOAT32: edge.VectorStorageDatatype.Float32,
    VectorDatatype.FLOAT16: edge.VectorStorageDatatype.Float16,
    VectorDatatype.INT8: edge.VectorStorageDatatype.Turbo8,
}
_SEARCH_THREADS = 1
"""Number of threads that search the segments of a shard in parallel; ours has one segment. By default Edge starts eight
on two cores, which take the processor from the embedder while they look for work: two hundred context switches a search
instead of five."""


class EdgeEngine:
    """One shard in a directory of Edge's own; `space.json` names that directory, the vectors it holds and its id.

    `space.json` is written after the shard is created and removed before the shard is dropped. A shard without it is
    unfinished and is created again, as is one whose files are gone. Shards that it does not name are unfinished copies,
    or were replaced by a copy, and are removed. While vectors are added to the shard or dropped, `unsure` names them:
    after a crash the shard may have them or not, and Edge loads it only with the right list.
    """

    def __init__(self, directory: Path, datatype: VectorDatatype = VectorDatatype.FLOAT32) -> None:
        self._directory = directory
        self._datatype = datatype
        self._space_path = directory / "space.json"
        self._made: dict[str, Any] = {}
        self._vectors = StoredVectors({})
        self._opened_for = VectorSpace("", 0)
        self._shard: Any = None
        self._copy: ShardCopy | None = None
        self.dirty = False
        """Whether something was written since the last flush."""

    def open(self, space: VectorSpace, other: VectorSpace | None = None) -> str:
        self._let_go()
        if not self._load(space):
            self._space_path.unlink(missing_ok=True)
            self._remove_others("")
            self._vectors = StoredVectors.of_new(self._datatype, space, *([other] if other else []))
            self._shard = _new_shard(self._directory / _FIRST, self._vectors)
            self._shard.flush()
            self._made = {"id": uuid4().hex, "directory": _FIRST}
            self._record(self._vectors)
        elif other is not None and other not in self._vectors.names:
            self._add_vectors(other)
        self._opened_for = space
        return str(self._made["id"])

    def drop_vectors(self, model: str) -> None:
        self._opened()
        name = self._vectors.named(model)
        if name is None:
            return
        if model == self._opened_for.model:
            raise ValueError(f"the index is searched by vectors of model {model!r}")
        # A copy under way has these vectors too.
        self._drop_copy()
        self._record(self._vectors, unsure=name)
        if name in self._vectors.dimensions:
            self._update(edge.UpdateOperation.delete_vector_name(name))
            self.flush()
        self._vectors = self._vectors.without(name)
        self._record(self._vectors)

    def _load(self, space: VectorSpace) -> bool:
        """Loads the shard that `space.json` names; returns False if there is none. Raises IndexMismatch."""
        if not self._space_path.exists():
            return False
        told = json.loads(self._space_path.read_text("utf-8"))
        # Before there were copies, the directory always had this name.
        path = self._directory / told.get("directory", _FIRST)
        if not path.exists():
            return False
        vectors = StoredVectors.of_metadata(told).checked(space, self._datatype)
        unsure = told.get("unsure", "")
        try:
            self._shard = edge.EdgeShard.load(str(path), _config(vectors))
        except Exception:
            if not unsure:
                raise
            vectors = vectors.without(unsure)
            self._shard = edge.EdgeShard.load(str(path), _config(vectors))
        # A process that died may have left writes that are not on disk, so the next flush must not be skipped.
        self.dirty = True
        self._made = {"id": told["id"], "directory": path.name}
        self._vectors = vectors
        if unsure:
            self._record(vectors)
        self._remove_others(path.name)
        return True

    def _add_vectors(self, space: VectorSpace) -> None:
        vectors = self._vectors.with_space(space)
        name = vectors.names[space]
        self._record(vectors, unsure=name)
        create = edge.UpdateOperation.create_dense_vector
        self._update(create(name, space.dimension, edge.Distance.Cosine, datatype=_DATATYPES[vectors.datatype]))
        self.flush()
        self._vectors = vectors
        self._record(vectors)

    def _record(self, vectors: StoredVectors, unsure: str = "") -> None:
        told = {**vectors.metadata, **self._made, **({"unsure": unsure} if unsure else {})}
        _write_durably(self._space_path, json.dumps(told))

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        rows = [
            edge.Point(point.id, self._vectors_of(point), shape.payload_of(point))
            # Edge does not define which of two points with one id wins: keep the later.
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
            name = self._vectors.named(query.model or self._opened_for.model)
            if name is None:
                raise IndexUnavailable(f"the index holds no vectors of model {query.model!r}")
            dense = self._nearest(from_bytes(query.dense), name, conditions, query.limit_per_leg, edge.SearchParams())
        if query.sparse is not None and query.sparse.indices:
            # IDF is counted within the tenant, so that other users' words neither help nor leak.
            tenant = _filter([shape.tenant_condition(query.account, query.user)])
            scoped = edge.SearchParams(idf=edge.IdfParams(corpus=tenant))
            vector = edge.SparseVector(list(query.sparse.indices), list(query.sparse.values))
            sparse = self._nearest(vector, shape.SPARSE, conditions, query.limit_per_leg, scoped)
        return IndexHits(dense=self._hits(dense, None), sparse=self._hits(sparse, query.sparse))

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

    def occupancy(self) -> tuple[int, int]:
        """Returns the number of live points, and of removed points that still occupy a slot, as of the last flush.

        Edge reports only the former. The number of slots is derived from the length of its file with one number for
        each slot, so it survives a restart, and a copy starts at zero.
        """
        living = int(self._opened().info().points_count)
        segments = self._directory / self._made["directory"] / "segments"
        places = sum(path.stat().st_size for path in segments.glob(f"*/{_PLACES}")) // _PLACE_BYTES
        return living, max(0, places - living)

    def purge_start(self) -> None:
        """Begins to copy the live points to a new shard. A copy begun before is discarded."""
        source = self._opened()
        self._drop_copy()
        path = self._directory / f"{_FIRST}-{uuid4().hex[:8]}"
        try:
            self._copy = ShardCopy(source, _new_shard(path, self._vectors), path)
        except Exception:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def purge_step(self) -> bool:
        """Copies some points. Returns whether there are more. After the last ones the copy becomes the shard, and the
        old one is removed. Raises IndexUnavailable if no copy was begun in this process, or it was given up. Whatever
        fails, the shard continues without the copy."""
        copy = self._copy
        if copy is None:
            raise IndexUnavailable("no copy of the index was begun, or it was given up")
        try:
            if copy.step():
                return True
            copy.target.flush()
            before, self._made = self._made, {**self._made, "directory": copy.path.name}
            try:
                self._record(self._vectors)
            except Exception:
                self._made = before
                raise
        except Exception:
            self._drop_copy()
            raise
        old, self._shard, self._copy = self._shard, copy.target, None
        old.close()
        self._remove_others(copy.path.name)
        return False

    def purge_drop(self) -> None:
        """Discards the copy that was begun, if any."""
        self._drop_copy()

    def clear(self) -> None:
        self._let_go()
        self._space_path.unlink(missing_ok=True)
        self._remove_others("")

    def flush(self) -> None:
        if self._shard is not None and self.dirty:
            self._shard.flush()
            self.dirty = False

    def close(self) -> None:
        self._drop_copy()
        if self._shard is not None:
            self.flush()
            self._shard.close()
            self._shard = None

    def _let_go(self) -> None:
        """Closes what is open, so that the current files can be opened: they may have been deleted meanwhile."""
        try:
            self.close()
        except Exception as error:
            print(f"the index could not be closed and is given up: {error}", file=sys.stderr)
            self._shard = None

    def _drop_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is None:
            return
        try:
            copy.target.close()
        except Exception as error:
            print(f"a copy of the index could not be closed and is given up: {error}", file=sys.stderr)
        # The rest of it is removed with the next copy, or when the index is opened.
        shutil.rmtree(copy.path, ignore_errors=True)

    def _remove_others(self, kept: str) -> None:
        for path in self._directory.glob(f"{_FIRST}*"):
            if path.name != kept and path.is_dir():
                shutil.rmtree(path)

    def _opened(self) -> Any:
        if self._shard is None:
            raise IndexUnavailable("the index is not open")
        return self._shard

    def _update(self, operation: Any) -> None:
        shard = self._opened()
        self.dirty = True
        shard.update(operation)
        if self._copy is not None:
            try:
                self._copy.target.update(operation)
            except Exception as error:
                # The copy lacks a write now. The shard has it, and the next purge step raises an error.
                print(f"a copy of the index could not be written and is given up: {error}", file=sys.stderr)
                self._drop_copy()

    def _count(self, conditions: Any) -> int:
        return int(self._opened().count(edge.CountRequest(exact=True, filter=conditions)))

    def _vectors_of(self, point: IndexPoint) -> Any:
        dense = self._vectors.by_name(point.vectors, self._opened_for)
        sparse = edge.SparseVector(list(point.sparse.indices), list(point.sparse.values))
        return {shape.SPARSE: sparse, **{name: from_bytes(vector) for name, vector in dense.items()}}

    def _nearest(self, vector: Any, using: str, conditions: Any, limit: int, params: Any) -> list[Any]:
        found: list[Any] = self._opened().query(
            edge.QueryRequest(
                limit=limit,
                query=edge.Query.Nearest(vector, using=using),
                filter=conditions,
                params=params,
                with_payload=[shape.HIT],
                # Only sparse hits need their vector.
                with_vector=[shape.SPARSE] if using == shape.SPARSE else False,
            )
        )
        return found

    def _hits(self, found: Sequence[Any], asked: SparseVector | None) -> tuple[Hit, ...]:
        # Each of these accesses creates Python objects from the engine's data.
        packed: list[Any] = [(point.payload or {}).get(shape.HIT) for point in found]
        if None in packed:
            before = self._written_before([point.id for point, one in zip(found, packed, strict=True) if one is None])
            packed = [before[point.id] if one is None else one for point, one in zip(found, packed, strict=True)]
        held = [(point.vector or {}).get(shape.SPARSE) for point in found] if asked is not None else []
        return shape.hits_of([point.score for point in found], packed, asked, held)

    def _written_before(self, lacking: list[Any]) -> dict[Any, str]:
        """Returns what points written by the release before hold in place of HIT, by point id."""
        records = self._opened().retrieve(lacking, list(shape.HIT_FIELDS_BEFORE), False)
        return {record.id: shape.packed_of(record.id, record.payload) for record in records}


def _new_shard(path: Path, vectors: StoredVectors) -> Any:
    path.mkdir(parents=True)
    shard = edge.EdgeShard.create(str(path), _config(vectors))
    create = edge.UpdateOperation.create_field_index
    shard.update(create(shape.TENANT, edge.KeywordIndexParams(is_tenant=True)))
    for field in shape.KEYWORDS:
        shard.update(create(field, edge.PayloadSchemaType.Keyword))
    shard.update(create(shape.TIME, edge.IntegerIndexParams(lookup=False, range=True)))
    return shard


def _config(vectors: StoredVectors) -> Any:
    # No graph settings: Edge builds graphs only in `optimize`, which is never called, and reads its settings when the
    # shard is loaded. Every search compares the query with all points that pass its filters.
    datatype = _DATATYPES[vectors.datatype]
    dense = {
        name: edge.EdgeVectorParams(size, edge.Distance.Cosine, datatype=datatype)
        for name, size in vectors.dimensions.items()
    }
    sparse = {shape.SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
    return edge.EdgeConfig(vectors=dense or None, sparse_vectors=sparse, max_search_threads=_SEARCH_THREADS)


def _filter(conditions: Sequence[shape.Condition]) -> Any:
    return edge.Filter(must=[_condition(condition) for condition in conditions])


def _condition(condition: shape.Condition) -> Any:
    if isinstance(condition, shape.AnyOf):
        return edge.FieldCondition(condition.field, match=edge.MatchAny(list(condition.values)))
    return edge.FieldCondition(condition.field, range=edge.RangeFloat(gte=condition.start, lt=condition.end))


def _write_durably(path: Path, text: str) -> None:
    """Replaces a file atomically: after a crash it is the old one or the new one, whole."""
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
