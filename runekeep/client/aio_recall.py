"""What is worth telling a model now: recalled memories and passages, and the context of a session."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypedDict, Unpack, cast

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.client.arguments import listed
from runekeep.client.connection import Connection, new_request_id
from runekeep.client.messages import message_from_wire
from runekeep.client.plain import enum_number, plain
from runekeep.client.recall_results import LevelName, Recalled, SessionContext
from runekeep.v1 import memory_service_pb2, session_service_pb2


class RecallOptions(TypedDict, total=False):
    """What a recall may be told besides its query; each may be left out.

    token_budget: tokens of the text (2000). quotas: by memory type, or `passages`, most entries, or most entries and
    most tokens of them: `{"events": 5, "passages": (3, 500)}`. max_level: uri, abstract, overview or full. limit:
    entries, 1 to 100 (20). repeat: also what the session was given before. request_id: of a call that is repeated.
    The others choose among memories and passages as those of `find` do.
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
    min_revision: int
    repeat: bool
    request_id: str


class UserRecall:
    """Recalls of a user; every AsyncClient is this too."""

    _connection: Connection

    async def recall(self, query: str, session: str = "", **options: Unpack[RecallOptions]) -> Recalled:
        """What is worth telling a model about `query`, as text that fits a token budget, see RecallOptions.

        With a `session`, by id or URI, what it was given is kept and left out of its next recalls, until the messages
        of then are archived or the memory changes; an empty query then takes what the user said last in it. Raises
        NotFoundError when there is no such session.
        """
        return await _recall(self._connection, query, session, options)


class SessionRecall(ABC):
    """Recalls for one session and its context; every AsyncSession is this too."""

    session_id: str
    _connection: Connection

    @abstractmethod
    async def _ensure(self) -> None:
        """Makes the session on the server when it is not there."""

    async def recall(self, query: str = "", **options: Unpack[RecallOptions]) -> Recalled:
        """What is worth telling this session now about `query`, or else about what the user said last in it.

        What it was given is left out until the messages of then are archived or the memory changes. See RecallOptions.
        """
        await self._ensure()
        return await _recall(self._connection, query, self.session_id, options)

    async def context(self, token_budget: int = 0) -> SessionContext:
        """What a model needs to go on with this conversation, in at most `token_budget` tokens (0: 8000).

        Live messages come first, the newest before older ones, then archived ones that no extraction has read, then the
        overview of what is extracted.
        """
        await self._ensure()
        request = session_service_pb2.GetSessionContextRequest(session=self.session_id, token_budget=token_budget)
        response = await self._connection.call(self._connection.stubs.sessions.GetSessionContext, request, 5)
        return SessionContext(
            overview=response.overview,
            overview_uri=response.overview_uri,
            pending=[message_from_wire(message) for message in response.pending_messages],
            live=[message_from_wire(message) for message in response.live_messages],
            tokens=response.tokens,
            omitted_messages=response.omitted_messages,
            overview_omitted=response.overview_omitted,
        )


async def _recall(connection: Connection, query: str, session: str, options: RecallOptions) -> Recalled:
    kinds = [enum_number(memory_service_pb2.FoundKind, kind) for kind in listed(options.get("kinds", ()), "kinds")]
    level = enum_number(memory_service_pb2.RecallLevel, options.get("max_level", "full"))
    request = memory_service_pb2.RecallRequest(
        query=query,
        session=session,
        token_budget=options.get("token_budget", 0),
        quotas=[_quota(name, most) for name, most in options.get("quotas", {}).items()],
        max_level=memory_service_pb2.RecallLevel.ValueType(level),
        limit=options.get("limit", 0),
        target_uri=options.get("target_uri", ""),
        memory_types=listed(options.get("memory_types", ()), "memory_types"),
        kinds=[memory_service_pb2.FoundKind.ValueType(number) for number in kinds],
        peers=listed(options.get("peers", ()), "peers"),
        tags=listed(options.get("tags", ()), "tags"),
        start_time=_timestamp(options.get("start_time")),
        end_time=_timestamp(options.get("end_time")),
        score_threshold=options.get("score_threshold"),
        min_revision=options.get("min_revision", 0),
        repeat=options.get("repeat", False),
        request_id=options.get("request_id") or new_request_id(),
    )
    response = await connection.call(connection.stubs.memories.Recall, request, 10)
    answer = plain(response)
    answer["omitted"] = plain(response.omitted)
    return cast(Recalled, answer)


def _quota(name: str, most: int | tuple[int, int]) -> memory_service_pb2.RecallQuota:
    items, tokens = (most, 0) if isinstance(most, int) else most
    return memory_service_pb2.RecallQuota(memory_type=name, max_items=items, max_tokens=tokens)


def _timestamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment.astimezone(UTC))
    return stamp
