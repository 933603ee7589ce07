"""Recalls memories and passages for a prompt."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypedDict, Unpack

from runekeep.client.blocking import blocking
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.memories.results import LevelName, RecallResult
from runekeep.client.wire.arguments import refuse_unknown, require_list, time_to_wire
from runekeep.client.wire.proto_json import enum_number, to_json
from runekeep.v1 import memory_service_pb2


class RecallOptions(TypedDict, total=False):
    """Options of a recall; all are optional.

    token_budget: maximum tokens of the text (2000). quotas: by memory type, or for `passages`, the maximum number of
    entries, or of entries and of their tokens: `{"events": 5, "passages": (3, 500)}`. max_level: uri, abstract,
    overview or full. limit: maximum number of entries, 1 to 100 (40). repeat: include what the session got before.
    request_id: the id of a repeated call. min_relevance: leave out what is less relevant, from 0 to 1; if not given, an
    answer without anything relevant is short. parts: "stable", the profile, preferences and plans in stable_budget
    tokens (500), and "query", the default. The others select memories and passages as those of `find` do.
    """

    token_budget: int
    quotas: Mapping[str, int | tuple[int, int]]
    max_level: LevelName
    limit: int
    target_uri: str
    memory_types: Sequence[str]
    kinds: Sequence[Literal["memory", "passage"]]
    peers: Sequence[str]
    tags: Sequence[str]
    start_time: datetime
    end_time: datetime
    score_threshold: float
    min_relevance: float
    parts: Sequence[Literal["stable", "query"]]
    stable_budget: int
    min_revision: int
    repeat: bool
    request_id: str


class UserRecall:
    """Recalls of a user; every AsyncClient is this too."""

    _connection: Connection

    async def recall(self, query: str = "", session: str = "", **options: Unpack[RecallOptions]) -> RecallResult:
        """Returns the memories and passages most relevant to `query`, as text within a token budget; see RecallOptions.

        `session`, an id or URI: the server records what the session gets, and leaves it out of later recalls until its
        live messages are archived or the memory changes. With an empty query, the last three live messages of the user
        are the query; without any, nothing is found. A session that does not exist yet has received nothing, and
        nothing is recorded for it. `parts=["stable"]` needs neither.

        ```python
        found = client.recall("Where do I live?", token_budget=500)
        print(found.text, [entry.uri for entry in found.entries])
        ```
        """
        return await recall(self._connection, query, session, options)


class BlockingUserRecall:
    """Blocking versions of the methods of UserRecall; a base of Client."""

    recall = blocking(UserRecall.recall)


async def recall(connection: Connection, query: str, session: str, options: RecallOptions) -> RecallResult:
    refuse_unknown(options, RecallOptions, "recall")
    kinds = [
        enum_number(memory_service_pb2.FoundKind, kind) for kind in require_list(options.get("kinds", ()), "kinds")
    ]
    level = enum_number(memory_service_pb2.RecallLevel, options.get("max_level", "full"))
    parts = [enum_number(memory_service_pb2.RecallPart, one) for one in require_list(options.get("parts", ()), "parts")]
    request = memory_service_pb2.RecallRequest(
        query=query,
        session=session,
        token_budget=options.get("token_budget", 0),
        quotas=[_quota(name, most) for name, most in options.get("quotas", {}).items()],
        max_level=memory_service_pb2.RecallLevel.ValueType(level),
        limit=options.get("limit", 0),
        target_uri=options.get("target_uri", ""),
        memory_types=require_list(options.get("memory_types", ()), "memory_types"),
        kinds=[memory_service_pb2.FoundKind.ValueType(number) for number in kinds],
        peers=require_list(options.get("peers", ()), "peers"),
        tags=require_list(options.get("tags", ()), "tags"),
        start_time=time_to_wire(options.get("start_time"), "start_time"),
        end_time=time_to_wire(options.get("end_time"), "end_time"),
        score_threshold=options.get("score_threshold"),
        min_relevance=options.get("min_relevance"),
        parts=[memory_service_pb2.RecallPart.ValueType(number) for number in parts],
        stable_budget=options.get("stable_budget", 0),
        min_revision=options.get("min_revision", 0),
        repeat=options.get("repeat", False),
        request_id=options.get("request_id") or new_request_id(),
    )
    response = await connection.call(connection.stubs.memories.Recall, request)
    answer = to_json(response)
    answer["omitted"] = to_json(response.omitted)
    return RecallResult(answer)


def _quota(name: str, most: int | tuple[int, int]) -> memory_service_pb2.RecallQuota:
    items, tokens = (most, 0) if isinstance(most, int) else most
    return memory_service_pb2.RecallQuota(memory_type=name, max_items=items, max_tokens=tokens)
