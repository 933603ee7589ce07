"""Questions that a model answers from the user's memory."""

from collections.abc import AsyncGenerator
from typing import Literal

import grpc

from runekeep.client.blocking import blocking_iter
from runekeep.client.connection.connection import Connection
from runekeep.client.memories.results import RecallOmitted
from runekeep.client.tasks.results import TokenUsage
from runekeep.client.wire.proto_json import to_json
from runekeep.client.wire.result import Result
from runekeep.client.wire.values import Extractor
from runekeep.methods import default_seconds
from runekeep.v1 import memory_service_pb2


class AnswerSource(Result):
    """A memory by its URI, with `sequence` 0, or a message by the URI of its session and its position there."""

    uri: str
    sequence: int
    message_id: str


class AskProgress(Result):
    """`attempt` counts from 1: a higher one says that another worker began anew. `percent`: 0 to 100 of the attempt."""

    kind: Literal["progress"]
    attempt: int
    percent: int
    message: str
    waiting_for: str


class AnswerStatement(Result):
    """One statement of the answer, with its sources."""

    kind: Literal["statement"]
    text: str
    sources: list[AnswerSource]


class AskResult(Result):
    """The last update. `fallback`: why no model answered, so that the statements are those of a recall; None if one
    did. `unknown`: what was asked and memory does not say, in words of the model that nobody checks. `dropped_items`:
    parts of the model's answer that could not be read, or were too long or too many. `usage` counts the cost of all
    attempts. `omitted` to `pending_passages`: what the recall lacks, as in RecallResult."""

    kind: Literal["result"]
    statements: int
    unknown: list[str]
    fallback: Literal["no_extractor", "out_of_time", "out_of_budget", "failed", "nothing_stored"] | None
    fallback_message: str
    sources_removed: int
    statements_removed: int
    dropped_items: int
    secrets_withheld: int
    attempts: int
    extractor: Extractor | None
    usage: list[TokenUsage]
    omitted: RecallOmitted
    degraded: list[str]
    pending_memories: int
    pending_passages: int


AskUpdate = AskProgress | AnswerStatement | AskResult


class UserAsks:
    """Questions of a user; every AsyncClient is this too."""

    _connection: Connection

    async def ask(
        self, question: str, *, model_only: bool = False, timeout: float | None = None
    ) -> AsyncGenerator[AskUpdate, None]:
        """Answers a question from the user's memory. Yields progress, the statements, and the result last.

        The server has checked the sources of each statement. If no model answers, the statements are what a recall
        finds, and `fallback` of the result says why; with `model_only`, UnavailableError (`NO_MODEL_ANSWER`) is raised
        instead. `timeout` in seconds replaces that of the client and of the contract (120). If you close the iterator,
        the work is cancelled. The call is never repeated, because it may cost money.

        ```python
        for update in client.ask("Where do I live?"):
            if update.kind == "statement":
                print(update.text, [source.uri for source in update.sources])
        ```
        """
        connection = self._connection
        request = memory_service_pb2.AskMemoryRequest(question=question, model_only=model_only)
        seconds = next(one for one in (timeout, connection.timeout, default_seconds(request)) if one is not None)
        stream = connection.stubs.memories.AskMemory(request, timeout=seconds, metadata=connection.stream_metadata)
        try:
            async for response in stream:
                if (update := read_update(response)) is not None:
                    yield update
        except grpc.aio.AioRpcError as error:
            raise connection.failure(error) from error
        finally:
            stream.cancel()


class BlockingUserAsks:
    """Blocking versions of the methods of UserAsks; a base of Client."""

    ask = blocking_iter(UserAsks.ask)


def read_update(response: memory_service_pb2.AskMemoryResponse) -> AskUpdate | None:
    """Returns an update; None for one that this client does not know."""
    match response.WhichOneof("event"):
        case "progress":
            progress = to_json(response.progress.progress)
            shown = {key: progress[key] for key in ("percent", "message", "waiting_for")}
            return AskProgress({"kind": "progress", "attempt": response.progress.attempt, **shown})
        case "statement":
            return AnswerStatement({"kind": "statement", **to_json(response.statement)})
        case "result":
            return AskResult({"kind": "result", **to_json(response.result)})
    return None
