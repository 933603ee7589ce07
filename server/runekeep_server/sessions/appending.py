"""Appends messages to sessions, for AddMessages and StreamMessages alike."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.identity import current_trace
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.protocol.idempotency import find_answer, key_of
from runekeep_server.sessions import tool_outputs
from runekeep_server.sessions.accepted_sizes import check_messages
from runekeep_server.sessions.commits import Commits
from runekeep_server.settings import Settings
from runekeep_server.wire import messages as wire_messages
from runekeep_server.wire import sessions as wire
from runekeep_server.wire.basics import session_id
from runekeep_storage.database import Space
from runekeep_storage.sessions import appends
from runekeep_storage.sessions.appends import Append, AppendResult
from runekeep_storage.sessions.commits import Commit
from runekeep_storage.store import Store

_T = TypeVar("_T")

MAX_INLINE_CONVERSION_BYTES: Final = 16 * 1024
"""Maximum bytes of a request that is converted on the event loop. Converting 16 KiB of nulls takes about two
milliseconds."""


async def convert_wire(request_bytes: int, convert: Callable[[], _T]) -> _T:
    """Returns the result of `convert`. A large request, which may contain many JSON values, is converted in a thread,
    so that it does not block other calls."""
    return await asyncio.to_thread(convert) if request_bytes > MAX_INLINE_CONVERSION_BYTES else convert()


class Appending:
    """The steps of an append after its request is validated."""

    def __init__(self, store: Store, settings: Settings, commits: Commits) -> None:
        self._store = store
        self._database = store.database
        self._most_inline_chars = settings.tool_output_inline_chars
        self._sizes = AnswerSizes.of(settings.max_message_bytes)
        self._commits = commits

    async def append(self, space: Space, request: pb.AddMessagesRequest, request_bytes: int) -> pb.AddMessagesResponse:
        """Returns when the messages are durable."""
        prepared = await self.prepare(space, request, request_bytes)
        if isinstance(prepared, pb.AddMessagesResponse):
            return prepared
        (outcome,) = await self.write(space, [prepared])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def is_prepared_at_once(self, request_bytes: int) -> bool:
        """Returns whether `prepare` waits for nothing with a request of this size."""
        return request_bytes <= min(MAX_INLINE_CONVERSION_BYTES, self._most_inline_chars)

    async def prepare(
        self, space: Space, request: pb.AddMessagesRequest, request_bytes: int
    ) -> Append | pb.AddMessagesResponse:
        """Returns what `write` takes, or the answer if the request was served before. Raises ApiError,
        BlobsUnavailable, StoreUnavailable."""
        name = session_id("session", request.session, space.user)

        def convert_messages() -> tool_outputs.ExternalizedMessages:
            numbered = enumerate(request.messages)
            return tool_outputs.ExternalizedMessages(
                [wire_messages.from_wire(f"messages[{number}]", one) for number, one in numbered]
            )

        apart = await convert_wire(request_bytes, convert_messages)
        await check_messages(request_bytes, apart.messages, self._sizes.message)
        if tool_outputs.has_large_output(apart.messages, self._most_inline_chars):
            # Look for an earlier answer first: externalizing the output again may create another blob, which nothing
            # would reference.
            before = await find_answer(self._database, space, request, pb.AddMessagesResponse)
            if before is not None:
                return before
            apart = await tool_outputs.externalize_tool_outputs(
                self._store, space, apart.messages, self._most_inline_chars
            )
        brought = frozenset(message.id for message in request.messages if message.id)
        rules, traceparent, key = self._commits.rules, current_trace().traceparent, key_of(request, name)
        return await convert_wire(
            request_bytes,
            lambda: Append(
                name, apart.messages, brought, apart.outputs, rules, traceparent, key, wire.encode_append_response
            ),
        )

    async def write(self, space: Space, items: Sequence[Append]) -> list[pb.AddMessagesResponse | Exception]:
        """Writes the appends in order, in one transaction. Returns the answer to each, or why it is refused. Raises
        StoreUnavailable, SpaceShut."""
        outcomes = await self._database.write_jointly(appends.add_groups, space, items)
        answers: list[pb.AddMessagesResponse | Exception] = []
        for item, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, AppendResult):
                if isinstance(outcome.commit, Commit):
                    self._commits.durable()
                elif outcome.commit is not None:
                    self._commits.log_refusal(space, item.session_id, outcome.commit)
                answers.append(wire.append_response(outcome))
            else:
                answers.append(pb.AddMessagesResponse.FromString(outcome) if isinstance(outcome, bytes) else outcome)
        return answers
