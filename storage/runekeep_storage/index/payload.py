"""The form in which every engine stores points and evaluates filters, so that all engines find the same points."""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runekeep_storage.index.base import Hit, IndexPoint, IndexQuery, PointKind, tenant_of
from runekeep_storage.index.sparse import SparseVector

DENSE = "dense"
SPARSE = "sparse"
"""Names of the two vectors of a point."""

TENANT = "tenant"
KEYWORDS = ("kind", "ancestors", "memory_type", "peer", "sources", "tags")
TIME = "time"
"""Payload fields that filters use and that an engine indexes: tenant, keywords, and an integer range."""

HIT = "hit"
"""Payload field that is returned with a hit: all data of the hit, as a JSON array in one text. An engine returns one
field of hundreds of points in half the time of nine."""

HIT_FIELDS_BEFORE = ("kind", "uri", "version", "order", "session", "sequence", "sources", TIME, "fact")
"""The fields that the release before writes and reads instead of HIT. `packed_of` reads points that it wrote;
`fields_before` is written where its servers read points of this release."""

# Value of `peer` for a user's own memories: an absent value could not be matched together with others.
_SELF = ""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The field holds at least one of the values."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The field holds a number that is at least `start` and below `end`; None leaves that side open."""

    field: str
    start: int | None
    end: int | None


Condition = AnyOf | Between


_KINDS = {kind.value: kind for kind in PointKind}


def payload_of(point: IndexPoint) -> dict[str, Any]:
    """Returns the payload of a point. Values that filters could not match are left out, because every answer reads
    whole payloads."""
    payload = {
        TENANT: tenant_of(point.account, point.user),
        "kind": point.kind.value,
        "ancestors": ancestors(point.uri),
        "memory_type": point.memory_type,
        "peer": point.peer or _SELF,
        "sources": list(point.sources),
        TIME: point.time,
        "tags": list(point.tags),
        HIT: _packed(point),
    }
    return {field: value for field, value in payload.items() if value is not None and value != []}


def _packed(point: IndexPoint) -> str:
    """Returns the fields of a hit in the form that `hits_of` reads."""
    fields = (
        point.id,
        point.kind.value,
        point.uri,
        point.version,
        point.order,
        point.session,
        point.sequence,
        point.sources,
        point.time,
        point.fact,
    )
    return _json(fields)


def _json(fields: Sequence[Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def fields_before(point: IndexPoint) -> dict[str, Any]:
    """Returns the fields of a point that a server of the release before reads and `payload_of` does not write."""
    fields: dict[str, Any] = {"uri": point.uri, "version": point.version, "order": point.order, "fact": point.fact}
    if point.session is not None:
        fields |= {"session": point.session, "sequence": point.sequence}
    return fields


def lacking(found: Sequence[Any]) -> list[Any]:
    """Returns the ids of found points that the release before wrote: see `packed_of`."""
    return [point.id for point in found if HIT not in (point.payload or ())]


def packed_of(id: Any, payload: Mapping[str, Any]) -> str:
    """Returns the HIT field of a point, made from HIT_FIELDS_BEFORE if it is missing."""
    if HIT in payload:
        return str(payload[HIT])
    kind, uri, version, order, session, sequence, sources, time, fact = map(payload.get, HIT_FIELDS_BEFORE)
    return _json((str(id), kind, uri, version, order, session, sequence, sources or (), time, fact))


def hits_of(
    scores: Sequence[float], packed: Sequence[str], asked: SparseVector | None, held: Sequence[Any]
) -> tuple[Hit, ...]:
    """Returns the hits of one leg, best first. Takes, for each point, the score, the HIT field and, for the sparse leg,
    the sparse vector in the engine's own form, None if a point has none. Engines order equal scores arbitrarily; here
    the id decides."""
    # One text, so that the parser is called once.
    said = json.loads(f"[{','.join(packed)}]")
    words = _words(asked, held) if asked is not None else [()] * len(packed)
    hits = [
        Hit(id, score, _KINDS[kind], uri, version, order, session, sequence, tuple(sources), time, fact, weights)
        for score, (id, kind, uri, version, order, session, sequence, sources, time, fact), weights in zip(
            scores, said, words, strict=True
        )
    ]
    hits.sort(key=_best_first)
    return tuple(hits)


def _best_first(hit: Hit) -> tuple[float, str]:
    return -hit.score, hit.id


def _words(asked: SparseVector, held: Sequence[Any]) -> list[tuple[float, ...]]:
    """Returns the weights of the queried terms in each vector."""
    weighed = []
    for vector in held:
        if vector is None:
            weighed.append((0.0,) * len(asked.indices))
            continue
        indices, values = vector.indices, vector.values
        # Qdrant keeps the indices in ascending order.
        places = [bisect_left(indices, index) for index in asked.indices]
        weighed.append(
            tuple(
                [
                    values[place] if place < len(indices) and indices[place] == index else 0.0
                    for place, index in zip(places, asked.indices, strict=True)
                ]
            )
        )
    return weighed


def ancestors(uri: str) -> list[str]:
    """Returns the URI itself and every directory above it, without trailing slashes: the values that a subtree filter
    matches."""
    scheme, found, path = uri.partition("://")
    head, path = (f"{scheme}://", path) if found else ("", uri)
    names = path.strip("/").split("/")
    return [head + "/".join(names[: count + 1]) for count in range(len(names))]


def tenant_condition(account: str, user: str) -> AnyOf:
    """Returns the condition that keeps a call inside one user's space."""
    return AnyOf(TENANT, (tenant_of(account, user),))


def conditions_of(query: IndexQuery) -> list[Condition]:
    """Returns the conditions that a point must satisfy to match the query; the tenant always comes first."""
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
