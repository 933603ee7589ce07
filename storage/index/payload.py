"""Points and filters as every engine stores and reads them, so that all engines find the same."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from storage.index.base import Hit, IndexPoint, IndexQuery, PointKind, tenant_of
from storage.sparse import SparseVector

DENSE = "dense"
SPARSE = "sparse"
"""The names of the two vectors of a point."""

TENANT = "tenant"
KEYWORDS = ("kind", "ancestors", "memory_type", "peer", "sources", "tags")
TIME = "time"
"""The payload fields that filters use and that an engine keeps an index on: tenant, keywords, and an integer range."""

HIT_FIELDS = ("kind", "uri", "version", "order", "session", "sequence", "sources", "time", "fact")
"""The payload fields that come back with a hit."""

# What the field `peer` holds for a user's own memories: an absent value could not be asked for beside others.
_SELF = ""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The field holds at least one of the values."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The field holds a number from `start` on and below `end`; None leaves that side open."""

    field: str
    start: int | None
    end: int | None


Condition = AnyOf | Between


_KINDS = {kind.value: kind for kind in PointKind}


def payload_of(point: IndexPoint) -> dict[str, Any]:
    """A point without its vectors."""
    return {
        TENANT: tenant_of(point.account, point.user),
        "kind": point.kind.value,
        "uri": point.uri,
        "ancestors": ancestors(point.uri),
        "version": point.version,
        "order": point.order,
        "memory_type": point.memory_type,
        "peer": point.peer or _SELF,
        "session": point.session,
        "sequence": point.sequence,
        "sources": list(point.sources),
        TIME: point.time,
        "tags": list(point.tags),
        "fact": point.fact,
    }


def hit_of(
    point_id: UUID | str | int, score: float, payload: Mapping[str, Any], asked: SparseVector | None, held: Any
) -> Hit:
    """A search result from what the engine kept. `held`: the point's sparse vector, in the engine's own form."""
    return Hit(
        id=str(point_id),
        score=score,
        kind=_KINDS[payload["kind"]],
        uri=payload["uri"],
        version=payload["version"],
        order=payload["order"],
        session=payload.get("session"),
        sequence=payload.get("sequence"),
        sources=tuple(payload.get("sources") or ()),
        time=payload.get(TIME),
        fact=payload["fact"],
        words=_words(asked, held),
    )


def _words(asked: SparseVector | None, held: Any) -> tuple[float, ...]:
    if asked is None or not asked.indices:
        return ()
    if held is None:
        return (0.0,) * len(asked.indices)
    weights = dict(zip(held.indices, held.values, strict=True))
    return tuple([weights.get(index, 0.0) for index in asked.indices])


def ranked(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Best first; engines leave the order of equal scores to chance, here the id decides."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.id)))


def ancestors(uri: str) -> list[str]:
    """The URI itself and every directory above it, without trailing slashes: what a subtree filter matches."""
    scheme, found, path = uri.partition("://")
    head, path = (f"{scheme}://", path) if found else ("", uri)
    names = path.strip("/").split("/")
    return [head + "/".join(names[: count + 1]) for count in range(len(names))]


def tenant_condition(account: str, user: str) -> AnyOf:
    """The condition that keeps a call inside one user's space."""
    return AnyOf(TENANT, (tenant_of(account, user),))


def conditions_of(query: IndexQuery) -> list[Condition]:
    """What a point must satisfy to be found by the query; the tenant always comes first."""
    conditions: list[Condition] = [tenant_condition(query.account, query.user)]
    if query.kinds:
        conditions.append(AnyOf("kind", tuple(kind.value for kind in query.kinds)))
    if query.uri_prefix is not None:
        conditions.append(AnyOf("ancestors", (ancestors(query.uri_prefix)[-1],)))
    if query.memory_types:
        conditions.append(AnyOf("memory_type", query.memory_types))
    if query.peers:
        conditions.append(AnyOf("peer", tuple(peer or _SELF for peer in query.peers)))
    if query.sessions:
        conditions.append(AnyOf("sources", query.sessions))
    conditions.extend(AnyOf("tags", (tag,)) for tag in query.tags)
    if query.since is not None or query.until is not None:
        conditions.append(Between(TIME, query.since, query.until))
    return conditions
