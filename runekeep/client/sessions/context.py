"""What a model needs to continue a session: recalls for it, and its context."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Unpack

from runekeep.client.blocking import blocking
from runekeep.client.connection.connection import Connection
from runekeep.client.memories.recall import RecallOptions, recall
from runekeep.client.memories.results import RecallResult
from runekeep.client.sessions.messages import Message, message_from_wire
from runekeep.v1 import session_service_pb2


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a model needs to continue a conversation, oldest first: the `overview` of extracted archives, with the URI
    of its archive; `pending` messages, archived but not extracted; `live` messages, not archived.

    `tokens` counts overview and messages. `omitted_messages` and `overview_omitted`: what the budget left out.
    """

    overview: str
    overview_uri: str
    pending: list[Message]
    live: list[Message]
    tokens: int
    omitted_messages: int
    overview_omitted: bool

    @property
    def messages(self) -> list[Message]:
        """Pending and live messages, oldest first."""
        return [*self.pending, *self.live]

    def to_dict(self) -> dict[str, Any]:
        """Returns a dictionary that `json.dumps` takes."""
        return {
            "overview": self.overview,
            "overview_uri": self.overview_uri,
            "pending_messages": [message.to_dict() for message in self.pending],
            "live_messages": [message.to_dict() for message in self.live],
            "tokens": self.tokens,
            "omitted_messages": self.omitted_messages,
            "overview_omitted": self.overview_omitted,
        }


class SessionRecall(ABC):
    """Recalls for one session and its context; every AsyncSession is this too."""

    session_id: str
    _connection: Connection

    @abstractmethod
    async def _ensure_exists(self) -> None:
        """Creates the session on the server if it does not exist."""

    async def recall(self, query: str = "", **options: Unpack[RecallOptions]) -> RecallResult:
        """Recalls for this session what is relevant to `query`, by default to the last three live messages of the user.

        Leaves out what the session got before, until its live messages are archived or the memory changes. See
        RecallOptions.

        ```python
        print(session.recall(token_budget=500).text)
        ```
        """
        await self._ensure_exists()
        return await recall(self._connection, query, self.session_id, options)

    async def context(self, token_budget: int = 0) -> SessionContext:
        """Returns what a model needs to continue this conversation, in at most `token_budget` tokens (0: 8000).

        The budget goes to live messages first, newest before older ones, then to archived messages that are not
        extracted, then to the overview of extracted archives.

        ```python
        context = session.context(token_budget=4000)
        print(context.overview, len(context.messages))
        ```
        """
        await self._ensure_exists()
        request = session_service_pb2.GetSessionContextRequest(session=self.session_id, token_budget=token_budget)
        response = await self._connection.call(self._connection.stubs.sessions.GetSessionContext, request)
        return SessionContext(
            overview=response.overview,
            overview_uri=response.overview_uri,
            pending=[message_from_wire(message) for message in response.pending_messages],
            live=[message_from_wire(message) for message in response.live_messages],
            tokens=response.tokens,
            omitted_messages=response.omitted_messages,
            overview_omitted=response.overview_omitted,
        )


class BlockingSessionRecall:
    """Blocking versions of the methods of SessionRecall; a base of Session."""

    recall = blocking(SessionRecall.recall)
    context = blocking(SessionRecall.context)
