"""A job with the real embedder, and a space that keeps what an output wrote by the rules of `schemas`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runekeep.v1 import extractor_service_pb2, memory_service_pb2
from runekeep_extractor.engine.interface import EngineOutput
from runekeep_extractor.rpc.calls import EmbedderDown
from runekeep_schemas.documents.filenames import memory_uri
from runekeep_schemas.documents.merge import Fields, Patch, Set, create, merge_write, update
from runekeep_schemas.documents.patch import SearchReplaceBlock
from runekeep_storage.embedders.base import Embedder
from runekeep_storage.embedders.vectors import from_bytes
from tests.doubles.fixed_job import REGISTRY, FixedJob, memory


class EmbeddingJob(FixedJob):
    """Embeds with the embedder given; without one the server's counts as down. `embedded`: all texts so far."""

    embedder: Embedder | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.embedded: list[str] = []

    async def embed(self, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        self.embedded += texts
        if self.embedder is None:
            raise EmbedderDown(extractor_service_pb2.FAILURE_CLASS_INTERNAL, "EmbedForJob: down")
        vectors = await self.embedder.embed(list(texts))
        return self.embedder.model, [from_bytes(vector) for vector in vectors]


class Space:
    """Memories of one user, and of peers, as `schemas` merges them. Routes by `peer_id` alone."""

    def __init__(self) -> None:
        self._fields: dict[str, tuple[str, Fields]] = {}

    def apply(self, output: EngineOutput) -> list[str]:
        """The URIs that changed. Raises what `schemas` raises for an operation that does not apply."""
        changed = []
        for operation in output.operations:
            if operation.WhichOneof("operation") == "delete":
                uri = operation.delete.uri
                del self._fields[uri]
                changed.append(uri)
                continue
            if operation.WhichOneof("operation") == "write":
                type = REGISTRY[operation.write.memory_type]
                given = _plain(operation.write.fields)
                uri = memory_uri(type, given, "default", operation.peer_id or None)
                known = self._fields.get(uri)
                fields = create(type, given) if known is None else merge_write(type, known[1], given)
            else:
                uri = operation.edit.uri
                name, current = self._fields[uri]
                type = REGISTRY[name]
                changes = {}
                for patch in operation.edit.patches:
                    blocks = tuple(
                        SearchReplaceBlock(block.search, block.replace, block.start_line or None)
                        for block in patch.search_replace.blocks
                    )
                    changes[patch.field] = Patch(blocks) if blocks else Set(patch.value.string_value)
                fields = update(type, current, changes)
            self._fields[uri] = (type.name, fields)
            changed.append(uri)
        return changed

    def text(self, path: str) -> str:
        """Content of a memory; `path` below the user's space."""
        return str(self._fields[f"viking://user/default/{path}"][1]["content"])

    def paths(self) -> list[str]:
        """Every memory, below the user's space."""
        return sorted(uri.removeprefix("viking://user/default/") for uri in self._fields)

    def memories(self) -> list[memory_service_pb2.Memory]:
        """For the next job."""
        made = []
        for uri, (name, fields) in self._fields.items():
            wire = memory("", name, {key: value for key, value in fields.items() if value != ""})
            wire.uri = uri
            made.append(wire)
        return made


def _plain(fields: Mapping) -> dict[str, object]:
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in fields.items()}
