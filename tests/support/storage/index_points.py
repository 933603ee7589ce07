"""Points, questions and vectors of the index suites."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID, uuid4

from runekeep_storage.embedders.vectors import to_bytes
from runekeep_storage.index.base import (
    IndexHits,
    IndexPoint,
    IndexQuery,
    PointKind,
    VectorIndex,
    VectorSpace,
)
from runekeep_storage.index.sparse import encode_document, encode_query

Maker = Callable[..., VectorIndex]
"""Makes an index object; it takes the datatype as `datatype`."""
SERVER_URL = os.environ.get("QDRANT_URL")

SPACE = VectorSpace("four-numbers", 4)
NORTH, EAST, SOUTH = (to_bytes(numbers) for numbers in ([1, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 0, 0]))


Index = TypeVar("Index", bound=VectorIndex)


@asynccontextmanager
async def opened(made: Index, space: VectorSpace = SPACE) -> AsyncIterator[Index]:
    try:
        await made.open(space)
        yield made
    finally:
        await made.close()


def point(text: str, user: str = "ann", dense: bytes | None = NORTH, number: int | None = None) -> IndexPoint:
    return IndexPoint(
        id=str(UUID(int=number) if number is not None else uuid4()),
        account="acme",
        user=user,
        kind=PointKind.MEMORY,
        uri=f"viking://user/{user}/memories/preferences/tea.md",
        version=1,
        order=7,
        sparse=encode_document(text),
        dense=dense,
    )


def ask(text: str = "", user: str = "ann", dense: bytes | None = None) -> IndexQuery:
    return IndexQuery(account="acme", user=user, dense=dense, sparse=encode_query(text) if text else None)


def ids(hits: IndexHits) -> tuple[list[str], list[str]]:
    return [hit.id for hit in hits.dense], [hit.id for hit in hits.sparse]
