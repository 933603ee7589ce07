"""The interface of every vector index, whatever engine is behind it.

An index holds points, each in one user's space, found by a dense vector, a sparse vector, or both. It is never the
source of truth: callers join what it finds with the store before they show it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self
from uuid import UUID

from runekeep_storage.index.sparse import SparseVector


class IndexUnavailable(Exception):
    """The index cannot answer now; the same call may succeed later. A failed write may or may not have been applied:
    every write may be repeated."""


class IndexMismatch(Exception):
    """The index was made for vectors of another model or dimension and must be rebuilt."""


class DatatypeMismatch(IndexMismatch):
    """The index was made with another datatype and must be rebuilt."""


class IndexTooOld(IndexMismatch):
    """The index server is of a version that cannot be used."""


class PointKind(StrEnum):
    """What a point stands for: a memory, or a passage of a conversation."""

    MEMORY = "memory"
    PASSAGE = "passage"


class VectorDatatype(StrEnum):
    """How an index holds each number of a dense vector. The store has float32 vectors in any case.

    INT8: one byte a number, with four bytes more for each vector. Qdrant calls it `turbo8`; its `uint8` is for whole
    numbers up to 255, which unit vectors do not have.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """The kind of dense vectors in an index: the embedder's model name and the number of dimensions."""

    model: str
    dimension: int


SPARSE_ONLY = VectorSpace("none", 0)
"""An index without dense vectors, for a server without an embedder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPoint:
    """A searchable item. `id` is a UUID; writing a point replaces the point of the same id as a whole.

    `version` counts the versions of the memory. `fact` is a prior, see `runekeep_storage.indexing.facts`. `order` is
    the revision that wrote a memory, or the ordinal of a passage. `session` and `sequence` locate the message of a
    passage, `sources` are the sessions that a passage or a memory came from, `time` is in seconds since 1970. `dense`
    is little-endian float32, a vector of `model` (empty: of the space that the index was opened for); a point without
    it is found by its words only. `other`: while the embedder is changed, another model and the vector by it. Raises
    ValueError if a rule is violated.
    """

    id: str
    account: str
    user: str
    kind: PointKind
    uri: str
    version: int
    order: int
    sparse: SparseVector
    dense: bytes | None = None
    model: str = ""
    other: tuple[str, bytes] | None = None
    memory_type: str | None = None
    peer: str | None = None
    session: str | None = None
    sequence: int | None = None
    sources: tuple[str, ...] = ()
    time: int | None = None
    tags: tuple[str, ...] = ()
    fact: int = 0

    def __post_init__(self) -> None:
        tenant_of(self.account, self.user)
        if str(UUID(self.id)) != self.id:
            raise ValueError(f"a point's id is a UUID in its usual form, got {self.id!r}")
        if not self.uri:
            raise ValueError(f"point {self.id} has no URI")

    @property
    def vectors(self) -> dict[str, bytes]:
        """The dense vectors by model."""
        own = {} if self.dense is None else {self.model: self.dense}
        return own if self.other is None else {**own, self.other[0]: self.other[1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A search in one user's space. Empty filters match everything; several filters must all hold.

    `uri_prefix` is a URI whose subtree is searched, cut at slashes, the URI itself included. In `peers`, None stands
    for the user's own memories. `sessions` are matched against the sources. Every tag of `tags` must be present.
    `since` is inclusive and `until` exclusive, in seconds since 1970; a point without a time passes neither. A leg
    (`dense`, `sparse`) that is None or empty is not searched. `dense` is a vector of `model` (empty: of the space that
    the index was opened for) and is compared with vectors of that model only. Raises ValueError without an account or
    user, or for a limit below 1.
    """

    account: str
    user: str
    dense: bytes | None = None
    model: str = ""
    sparse: SparseVector | None = None
    kinds: tuple[PointKind, ...] = ()
    uri_prefix: str | None = None
    memory_types: tuple[str, ...] = ()
    peers: tuple[str | None, ...] = ()
    sessions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    limit_per_leg: int = 100

    def __post_init__(self) -> None:
        tenant_of(self.account, self.user)
        if self.limit_per_leg < 1:
            raise ValueError(f"limit_per_leg is at least 1, got {self.limit_per_leg}")


class Hit(NamedTuple):
    """A point found by one leg. `score` is that leg's own: cosine similarity, or BM25 with the IDF of the tenant.

    `words`, of a sparse hit: the weights of the query's terms in the point, in their order. `laid`: the hit comes from
    a row that is merged with the hits of the index, which did not score it. A tuple, because every search transfers
    hundreds of hits from another process.
    """

    id: str
    score: float
    kind: PointKind
    uri: str
    version: int
    order: int
    session: str | None
    sequence: int | None
    sources: tuple[str, ...] = ()
    time: int | None = None
    fact: int = 0
    words: tuple[float, ...] = ()
    laid: bool = False


@dataclass(frozen=True, slots=True)
class IndexHits:
    """The hits of each leg, best first, equal scores by id."""

    dense: tuple[Hit, ...] = ()
    sparse: tuple[Hit, ...] = ()

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        # Column by column: between processes that takes a third of the time.
        return type(self)._of_fields, (tuple(zip(*self.dense, strict=True)), tuple(zip(*self.sparse, strict=True)))

    @classmethod
    def _of_fields(cls, *legs: tuple[tuple[Any, ...], ...]) -> Self:
        return cls(*(tuple(map(Hit._make, zip(*fields, strict=True))) for fields in legs))


class VectorIndex(Protocol):
    """One index for all tenants. Every call except `healthy` and `close` may raise IndexUnavailable."""

    async def open(self, space: VectorSpace, other: VectorSpace | None = None) -> str:
        """Makes the index ready for vectors of that space, and creates it if needed. Returns its id, in hexadecimal
        digits. `other`: a second space, added to the index if it lacks it; points may have a vector of each. An index
        that is open already keeps answering searches while it is opened again.

        An index gets its id when it is created and keeps it while it exists: another id means that it holds nothing
        that was written before. It must be opened before every call but `clear`, and opened again if it turns out to be
        another index; until then every call raises IndexUnavailable. Raises IndexMismatch if it holds no vectors of
        `space`, or holds them in another datatype than this object was made for.
        """
        ...

    async def drop_vectors(self, model: str) -> None:
        """Removes the vectors of a model from all points, and the model from the index; an unknown one is no error. It
        must not be one that the index was opened for."""
        ...

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Writes points; they can be found when this returns. Of two points with one id the later one wins.

        Raises ValueError, before anything is written, if a dense vector has the wrong length.
        """
        ...

    async def delete(self, ids: Sequence[str]) -> None:
        """Removes points; unknown ids are no error."""
        ...

    async def delete_space(self, account: str, user: str) -> None:
        """Removes every point of one user."""
        ...

    async def query(self, query: IndexQuery) -> IndexHits:
        """Searches one user's space. Raises ValueError if the dense vector has the wrong length."""
        ...

    async def list_ids(self, account: str, user: str, *, after: str | None = None, limit: int = 1000) -> list[str]:
        """Returns up to `limit` ids of one user's points that are greater than `after`, in ascending order."""
        ...

    async def count(self, account: str, user: str) -> int:
        """Returns the number of one user's points."""
        ...

    async def count_all(self) -> int:
        """Returns the number of all users' points."""
        ...

    async def clear(self) -> None:
        """Drops all points and forgets the vector space; works on a mismatched index too. `open` must follow."""
        ...

    async def flush(self) -> None:
        """Brings written points to disk, if the engine leaves that to its caller."""
        ...

    async def purge(self) -> None:
        """Drops what the engine keeps of removed points, as far as it can; when this returns, that is on no disk. It
        may take long; other calls go on meanwhile."""
        ...

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        """What an operator must do for removed points to be gone for good, as sentences; see `purge`."""
        ...

    @property
    def place(self) -> str:
        """The location of the index, for messages; without a password."""
        ...

    async def read_mark(self) -> str:
        """Returns the text that `write_mark` wrote last, empty if there is none. The index need not be open."""
        ...

    async def write_mark(self, text: str) -> bool:
        """Stores a short text with the index, which need not be open, and returns True. If there is no index, stores
        nothing and returns False. Searches do not find the text, and `clear` may drop it."""
        ...

    async def healthy(self) -> bool:
        """Returns whether the index answers now."""
        ...

    async def close(self) -> None:
        """Releases the index. Another process may then open it; this object cannot be used again."""
        ...


# Below every character that an id may contain, so that no two pairs give the same tenant.
_TENANT_SEPARATOR = "\x1f"


def tenant_of(account: str, user: str) -> str:
    """Returns the value that identifies a user's space in every filter. Raises ValueError for an empty or forged
    part."""
    for name, value in (("account", account), ("user", user)):
        if not value or _TENANT_SEPARATOR in value:
            raise ValueError(f"not a valid {name} for the index: {value!r}")
    return f"{account}{_TENANT_SEPARATOR}{user}"


def check_dimension(dense: bytes | None, model: str, spaces: Sequence[VectorSpace], *, of_query: bool = False) -> None:
    """Raises ValueError if a vector is not one of its space, IndexUnavailable if the index was opened for other spaces:
    the embedder was changed meanwhile. A query that began before may still search vectors that are not written any
    more. The first of `spaces` is meant by an empty `model`."""
    if dense is None:
        return
    space = next((one for one in spaces if one.model == model), None) if model else spaces[0]
    if space is None and of_query:
        return
    if space is None:
        raise IndexUnavailable(f"the index was not opened for vectors of model {model!r}")
    if len(dense) != 4 * space.dimension:
        raise ValueError(f"a vector of {space.model} has {space.dimension} numbers of 4 bytes, got {len(dense)} bytes")


def mismatch(stored: str, asked: VectorSpace) -> IndexMismatch:
    """Returns the error for an index of another space; `stored` describes the one that was found."""
    return IndexMismatch(
        f"the index holds {stored}, but the server is set to {describe(asked)}: "
        "run `runekeep index rebuild`, or go back to the embedder it was made with"
    )


def datatype_mismatch(stored: str, asked: VectorDatatype) -> DatatypeMismatch:
    """Returns the error for an index of another datatype; `stored` is the one that was found."""
    return DatatypeMismatch(
        f"the index holds its vectors as {stored}, but the server is set to {asked}: "
        f"run `runekeep index rebuild`, which needs no embedder, or go back to {stored}"
    )


def describe(space: VectorSpace) -> str:
    """Describes a space in words, for messages."""
    return f"vectors of model {space.model!r} with dimension {space.dimension}"
