"""What every vector index offers, whichever engine is behind it.

An index holds points, each belonging to one user's space, found by a dense vector, by a sparse vector, or by both.
It is never the truth: a caller joins what it finds with the store before showing it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self
from uuid import UUID

from storage.sparse import SparseVector


class IndexUnavailable(Exception):
    """The index cannot answer now; the same call may succeed later. What it would have written may or may not have been
    written: every write may be repeated."""


class IndexMismatch(Exception):
    """The index was made for vectors of another model or dimension and must be rebuilt."""


class IndexTooOld(IndexMismatch):
    """The index server is of a version that cannot be used."""


class PointKind(StrEnum):
    """What a point stands for: a piece of long-term memory, or a passage of a conversation."""

    MEMORY = "memory"
    PASSAGE = "passage"


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """What the dense vectors of an index are: the embedder's model name and the count of numbers in a vector."""

    model: str
    dimension: int


SPARSE_ONLY = VectorSpace("none", 0)
"""An index without dense vectors, for a server without an embedder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPoint:
    """One thing to be found. `id` is a UUID; a point of the same id is replaced as a whole.

    `version` counts the versions of the memory. `fact` is a prior, see `storage.facts`. `order` is the revision that
    wrote a memory, the ordinal of a passage. `session` and `sequence` are the place of a passage's message, `sources`
    the sessions that it, or a memory, came from, `time` seconds since 1970. `dense` is little-endian float32; a point
    without it is found by its words alone.
    Raises ValueError where a rule is broken.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A search in one user's space. Empty filters let everything pass; several filters must all hold.

    `uri_prefix` is a URI whose subtree is searched, cut at slashes, the URI itself included. In `peers`, None
    stands for the user's own memories. `sessions` are matched against the sources. Every tag of `tags` must be there.
    `since` is inclusive and `until` exclusive, in seconds since 1970; a point without a time passes neither. A leg
    (`dense`, `sparse`) that is None or empty is not searched. Raises ValueError without an account or user, or for a
    limit below 1.
    """

    account: str
    user: str
    dense: bytes | None = None
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

    `words`, of a hit of the leg of words: the weights that the terms of the query's sparse vector have in the point, in
    their order. `laid`: it comes from a row that is laid over the index, and was not scored by it. A tuple, for
    hundreds of them come with every search from another process.
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
    """What each leg found, best first, equal scores by id."""

    dense: tuple[Hit, ...] = ()
    sparse: tuple[Hit, ...] = ()

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        # By fields and not by hits, which from one process to another takes a third of the time.
        return type(self)._of_fields, (tuple(zip(*self.dense, strict=True)), tuple(zip(*self.sparse, strict=True)))

    @classmethod
    def _of_fields(cls, *legs: tuple[tuple[Any, ...], ...]) -> Self:
        return cls(*(tuple(map(Hit._make, zip(*fields, strict=True))) for fields in legs))


class VectorIndex(Protocol):
    """One index for all tenants. Every call but `healthy` and `close` may raise IndexUnavailable."""

    async def open(self, space: VectorSpace) -> str:
        """Make the index ready for vectors of that space, creating it at first; its id, hexadecimal digits.

        An index gets its id when it is made and keeps it until it is gone: another id says that nothing is in it of
        what was written before. It must be opened before everything but `clear`, and opened again once it turned out
        to be another one: until then every call raises IndexUnavailable. Raises IndexMismatch when it holds vectors
        of another space.
        """
        ...

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Write points; when this returns, they are found. Of two points with one id the later stands.

        Raises ValueError, before anything is written, when a dense vector has the wrong length.
        """
        ...

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove points; ids that are not there are no error."""
        ...

    async def delete_space(self, account: str, user: str) -> None:
        """Remove every point of one user."""
        ...

    async def query(self, query: IndexQuery) -> IndexHits:
        """Search one user's space. Raises ValueError when the dense vector has the wrong length."""
        ...

    async def list_ids(self, account: str, user: str, *, after: str | None = None, limit: int = 1000) -> list[str]:
        """Up to `limit` ids of one user's points in ascending order, those greater than `after`."""
        ...

    async def count(self, account: str, user: str) -> int:
        """How many points one user has."""
        ...

    async def count_all(self) -> int:
        """How many points all users have."""
        ...

    async def clear(self) -> None:
        """Drop all points and forget the vector space; works on a mismatched index too. `open` must follow."""
        ...

    async def flush(self) -> None:
        """Bring what was written to disk, where the engine leaves that to its caller."""
        ...

    async def purge(self) -> None:
        """Let go of what the engine keeps of points that were removed, as far as that is in reach; when this returns it
        is on no disk. It may take long, and other calls go on meanwhile."""
        ...

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        """What has to be done by hand for removed points to be gone for good, as sentences; see `purge`."""
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
        """Whether the index answers now."""
        ...

    async def close(self) -> None:
        """Let go of the index. It may be opened again by another process; this object is done."""
        ...


# Below every character that an id may have, so that no two pairs give the same tenant.
_TENANT_SEPARATOR = "\x1f"


def tenant_of(account: str, user: str) -> str:
    """The one value that names a user's space in every filter. Raises ValueError for an empty or forged part."""
    for name, value in (("account", account), ("user", user)):
        if not value or _TENANT_SEPARATOR in value:
            raise ValueError(f"not a valid {name} for the index: {value!r}")
    return f"{account}{_TENANT_SEPARATOR}{user}"


def check_dimension(dense: bytes | None, space: VectorSpace) -> None:
    """Refuse, with ValueError, a vector that is not one of the space."""
    if dense is not None and len(dense) != 4 * space.dimension:
        raise ValueError(f"a vector of {space.model} has {space.dimension} numbers of 4 bytes, got {len(dense)} bytes")


def mismatch(stored: str, asked: VectorSpace) -> IndexMismatch:
    """The error for an index of another space; `stored` says what was found."""
    return IndexMismatch(
        f"the index holds {stored}, but the server is set to {describe(asked)}: "
        "run `runekeep index rebuild`, or go back to the embedder it was made with"
    )


def describe(space: VectorSpace) -> str:
    """A space in words, for messages."""
    return f"vectors of model {space.model!r} with dimension {space.dimension}"
