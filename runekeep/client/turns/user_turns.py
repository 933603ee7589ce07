"""Turn memory of all sessions of a user."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection
from runekeep.client.turns.feedback import list_feedback
from runekeep.client.turns.results import AssistantSignals, FeedbackList, TurnArtifact
from runekeep.client.wire.arguments import require_list
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import turn_memory_service_pb2 as wire

_PAGE = 200


class UserTurns:
    """The turns of all sessions of a user; every AsyncClient is this too."""

    _connection: Connection

    async def assistant_signals(
        self, keys: Sequence[str] = (), *, session: str = ""
    ) -> AsyncGenerator[AssistantSignals, None]:
        """Lists what the assistant promoted, newest first, in all sessions or in one: of the last 365 days, at most 512
        turns. `keys`: only these, spelled as in tags (`a.b` is `a_b`).

        ```python
        for turn in client.assistant_signals(["budget"]):
            print(turn.turn_id, [signal.value for signal in turn.signals])
        ```
        """
        request = wire.ListAssistantSignalsRequest(keys=require_list(keys, "keys"), session=session, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.turns.ListAssistantSignals, request):
            for turn in page.turns:
                yield AssistantSignals(to_json(turn))

    async def list_feedback(
        self, *, start_time: datetime | None = None, end_time: datetime | None = None, limit: int = 200
    ) -> FeedbackList:
        """Returns the newest `limit` reactions in all sessions, and the counts of all that match: from `start_time` on,
        before `end_time`.

        ```python
        feedback = client.list_feedback(limit=20)
        print(feedback.counts.not_ok, [one.text for one in feedback.feedback])
        ```
        """
        return await list_feedback(self._connection, "", (), start_time, end_time, limit)

    async def turn_artifacts(self, tags: Sequence[str], *, session: str = "") -> AsyncGenerator[TurnArtifact, None]:
        """Lists turn memory in its stored form, newest first, with all of `tags`, in all sessions or in one.

        For example `artifact:turn.fingerprint.v1`, `turn:{turn_id}`, `assistant_signal:{key}`, `origin:user`.

        ```python
        for artifact in client.turn_artifacts(["artifact:turn.fingerprint.v1"]):
            print(artifact.turn_id, artifact.text)
        ```
        """
        request = wire.ListTurnArtifactsRequest(tags=require_list(tags, "tags"), session=session, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.turns.ListTurnArtifacts, request):
            for artifact in page.artifacts:
                yield TurnArtifact(to_json(artifact))


class BlockingUserTurns:
    """Blocking versions of the methods of UserTurns; a base of Client."""

    assistant_signals = blocking_iter(UserTurns.assistant_signals)
    list_feedback = blocking(UserTurns.list_feedback)
    turn_artifacts = blocking_iter(UserTurns.turn_artifacts)
