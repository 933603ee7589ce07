"""What a worker is given to work on, in pieces, by the kind of its job."""

import json
from asyncio import to_thread
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from schemas.policy import Plan
from schemas.session_skills import SESSION_SKILLS
from schemas.tokens import BYTES_A_TOKEN
from schemas.turns.buckets import shown
from schemas.turns.fingerprint import Fingerprint, Query
from schemas.turns.selection import Offer
from schemas.turns.summary import Summary
from schemas.turns.views import compressed_view
from schemas.turns.window import LAST_TURNS, MOST_LAST
from server import turn_context
from server.answer_sizes import DEFAULT_SIZES, AnswerSizes
from server.shortening import shorten
from server.turn_texts import MESSAGES, text_of
from server.wire import memories as wire_memories
from server.wire import messages as wire_messages
from server.wire.turns import bucket_to_wire, query_to_wire, turn_to_wire
from storage import (
    archives,
    buckets,
    fingerprints,
    image_descriptions,
    jobs,
    live_messages,
    sessions,
    turn_jobs,
    turn_outputs,
    turns,
)
from storage.byte_limits import count_within
from storage.database import Space, Tx
from storage.errors import DataDamaged, NotFound
from storage.records import STORED_OUTPUT, Archive, Job, LeaseId, Message, Turn, Usage
from storage.store import Store

CHUNK_BYTES = 768 * 1024
"""Of messages, turns, buckets or of what was used in one piece of a job's input; one that is larger is a piece by
itself."""
PAGE = 200
"""Messages that are read from the store at once, and what turns have messages in as many places of a batch."""
PAGE_BYTES = 4 * 1024 * 1024
"""Of messages, and of what was used, that are read from the store at once; one that is larger is read by itself."""
TURN_MESSAGES = 100
"""First messages of a turn, and last ones, that a fingerprint is made from."""

DAMAGED_OUTPUT = "\n[The rest of this output is damaged in the store and cannot be read.]"

Item = TypeVar("Item", bound=ProtoMessage)


class JobInput:
    """Reads a job's input from the store, page by page: an archive or a turn may hold any number of messages."""

    def __init__(self, store: Store, sizes: AnswerSizes = DEFAULT_SIZES, *, buckets_enabled: bool = True) -> None:
        self._store = store
        self._sizes = sizes
        self._buckets_enabled = buckets_enabled
        self._wire_types = {type.name: wire_memories.memory_type(type) for type in (*store.registry, SESSION_SKILLS)}

    async def pieces(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        """The input of a job whose lease is held, in the order that the contract names. Raises LeaseLost."""
        match job.kind:
            case jobs.TURN_FINGERPRINT:
                found = self._of_turn(job)
            case jobs.BUCKET_RECONCILE:
                found = self._of_buckets(job)
            case _:
                found = self._of_commit(job)
        async for piece in found:
            yield piece

    # Commits

    async def _of_commit(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        types = self._types(Plan.from_json(json.loads(job.plan)))
        yield pb.GetJobInputResponse(memory_types=pb.MemoryTypeChunk(memory_types=types))
        begun = await self._store.database.read(_begin, jobs.space_of(job), job.lease)
        async for messages in _chunks(self._messages(job, begun)):
            yield pb.GetJobInputResponse(messages=pb.MessageChunk(messages=messages))
        async for turns_ in _chunks(self._turns_of(job, begun)):
            yield pb.GetJobInputResponse(turns=pb.TurnChunk(turns=turns_))
        async for uses in _chunks(self._uses(job, begun)):
            piece = pb.GetJobInputResponse(usage=pb.UsageChunk())
            for use in uses:
                piece.usage.MergeFrom(use)
            yield piece

    def _types(self, plan: Plan) -> list[memory_service_pb2.MemoryType]:
        enabled = (*plan.long_term_types, *plan.execution_types)
        names = [type.name for type in self._store.registry if type.name in enabled]
        if plan.session_skills:
            names.append(SESSION_SKILLS.name)
        return [self._wire_types[name] for name in names]

    async def _messages(self, job: Job, begun: "_Begun") -> AsyncIterator[common_pb2.Message]:
        """Messages of the job's archive, whole."""
        space, last = jobs.space_of(job), begun.archive.last_sequence
        page = begun.messages
        while page:
            for message in page:
                yield await self._whole(space, message)
            first = page[-1].sequence + 1
            if first > last:
                return
            page = await self._store.database.read(_page, space, job.session_id, first, last)

    async def _uses(self, job: Job, begun: "_Begun") -> AsyncIterator[pb.UsageChunk]:
        """One use each, after an empty one: the input ends with usage even where nothing was used."""
        yield pb.UsageChunk()
        space, (page, after) = jobs.space_of(job), begun.usages
        while True:
            for usage in page:
                use = _use(usage)
                shorten(use, self._sizes.record)
                yield use
            if not after:
                return
            page, after = await self._store.database.read(
                sessions.usages_page, space, job.session_id, job.archive_index, after, PAGE, PAGE_BYTES
            )

    async def _turns_of(self, job: Job, begun: "_Begun") -> AsyncIterator[turn_pb.CandidateTurn]:
        """Turns with messages in the archive, each once; their messages are there already, so they have no view."""
        space, archive = jobs.space_of(job), begun.archive
        given: set[str] = set()
        for first in range(archive.first_sequence, archive.last_sequence + 1, PAGE):
            if first == archive.first_sequence:
                page, known = begun.turns
            else:
                page, known = await self._store.database.read(_turns_between, space, job.session_id, first, archive)
            for turn in page:
                if turn.turn_id not in given:
                    given.add(turn.turn_id)
                    yield _candidate(job.user, turn, known.get(turn.turn_id))

    async def _whole(self, space: Space, message: Message) -> common_pb2.Message:
        """With whole outputs, and descriptions of images as far as an answer holds them."""
        whole = wire_messages.to_wire(await self._with_outputs(space, message))
        if whole.ByteSize() > self._sizes.record:
            await to_thread(shorten, whole, self._sizes.record)
        return whole

    async def _with_outputs(self, space: Space, message: Message) -> Message:
        """The message with tool outputs that are kept apart put back whole."""
        parts = []
        for part in message.parts:
            blob = part.get(STORED_OUTPUT)
            if blob is not None:
                try:
                    part = {**part, "output": (await to_thread(self._store.blobs.get, space, blob)).decode()}
                except (DataDamaged, NotFound):
                    # Nothing brings it back: the commit goes on with the preview, and the model is told.
                    part = {**part, "output": part["output"] + DAMAGED_OUTPUT}
            parts.append(part)
        return replace(message, parts=tuple(parts))

    # Turns and buckets

    async def _of_turn(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        space, turn_id = jobs.space_of(job), turn_outputs.turn_of(job)
        turn, ends = await self._store.database.read(_turn, job.lease, space, turn_id)
        async for some in _chunks(self._ends(space, turn, ends)):
            yield pb.GetJobInputResponse(messages=pb.MessageChunk(messages=some))
        candidates = await self._store.database.read(_up_to, space, turn)
        async for turns_ in _chunks(_each(candidates)):
            yield pb.GetJobInputResponse(turns=pb.TurnChunk(turns=turns_))
        wanted = turn_jobs.reconciliation_of(job.plan)
        if wanted.is_wanted:
            yield pb.GetJobInputResponse(context=await self._context(job, turn_id, wanted.queries))

    async def _context(self, job: Job, turn_id: str, queries: Sequence[Query]) -> turn_pb.LoadTurnContextResponse:
        """What a reconciler is shown in the turn; what it is offered, earlier turns alone, is kept with the job.

        Raises LeaseLost.
        """
        space = jobs.space_of(job)
        request = turn_pb.LoadTurnContextRequest(
            session=job.session_id,
            current_turn_id=turn_id,
            audience=turn_pb.CONTEXT_AUDIENCE_RECONCILER,
            last_turns=MOST_LAST,
            ctx_retrieval_queries=map(query_to_wire, queries),
            render=True,
        )
        shown = await turn_context.load(
            self._store, space, request, buckets_enabled=self._buckets_enabled, most_bytes=self._sizes.record
        )
        offer = Offer.decode(shown.offer)
        earlier = tuple(one for one in offer.turn_ids if one != turn_id)
        shown.offer = replace(offer, turn_ids=earlier).encode()
        await self._store.database.write(turn_outputs.take_context, space, job.lease, shown.offer)
        return shown

    async def _ends(
        self, space: Space, turn: Turn, ends: Sequence[tuple[int, int]]
    ) -> AsyncIterator[common_pb2.Message]:
        """Messages of a turn, whole, by their sequences, each with its tokens."""
        while ends:
            count = count_within([in_tokens * BYTES_A_TOKEN for _, in_tokens in ends], PAGE_BYTES)
            sequences, ends = [sequence for sequence, _ in ends[:count]], ends[count:]
            for message in await self._store.database.read(_at, space, turn.session_id, sequences):
                yield await self._whole(space, message)

    async def _of_buckets(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        space, database = jobs.space_of(job), self._store.database
        found = await buckets.load(database, self._store.blobs, space, job.session_id)
        wire = [bucket_to_wire(job.user, job.session_id, shown(one.bucket)) for one in found]
        async for some in _chunks(_each(wire)):
            yield pb.GetJobInputResponse(buckets=pb.BucketChunk(buckets=some))
        candidates = await database.write(_uncovered, space, job.lease, job.session_id)
        async for turns_ in _chunks(_each(candidates)):
            yield pb.GetJobInputResponse(turns=pb.TurnChunk(turns=turns_))


def _candidate(user: str, turn: Turn, fingerprint: Fingerprint | None, view: str = "") -> turn_pb.CandidateTurn:
    summary = Summary.from_text(turn.summary)
    return turn_pb.CandidateTurn(turn=turn_to_wire(user, turn, fingerprint, summary), compressed_view=view)


async def _page(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[Message]:
    """Messages, with what is known of their images: it need not be found out, and paid for, again."""
    messages, _ = await sessions.messages_page(tx, space, session_id, first, last, PAGE, PAGE_BYTES)
    return await image_descriptions.captioned(tx, space, messages)


_Turns = tuple[list[Turn], dict[str, Fingerprint]]
"""Turns, and the fingerprints of those that have one."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The input of a commit as far as one transaction reads it: all of most archives. `messages` and `turns`: the first
    PAGE of them, and of as many messages. `usages`: the first ones, and the number behind which others follow, 0 for
    none."""

    archive: Archive
    usages: tuple[list[Usage], int]
    messages: list[Message]
    turns: _Turns


async def _begin(tx: Tx, space: Space, lease: LeaseId) -> _Begun:
    """Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    archive = await archives.get(tx, space, job.session_id, job.archive_index)
    first = archive.first_sequence
    return _Begun(
        archive,
        await sessions.usages_page(tx, space, job.session_id, job.archive_index, 0, PAGE, PAGE_BYTES),
        await _page(tx, space, job.session_id, first, archive.last_sequence),
        await _turns_between(tx, space, job.session_id, first, archive),
    )


async def _turns_between(tx: Tx, space: Space, session_id: str, first: int, archive: Archive) -> _Turns:
    """Those with messages among PAGE of the archive from `first` on."""
    last = min(first + PAGE - 1, archive.last_sequence)
    found = await turns.between(tx, space, session_id, first, last)
    return found, await fingerprints.of(tx, space, session_id, [turn.turn_id for turn in found])


async def _turn(tx: Tx, lease: LeaseId, space: Space, turn_id: str) -> tuple[Turn, list[tuple[int, int]]]:
    """The turn of a fingerprint job, and sequences and tokens of its messages or of the ends of them."""
    job = await jobs.held(tx, lease, space)
    turn = await turns.get(tx, space, job.session_id, turn_id)
    return turn, await turns.ends(tx, space, turn, TURN_MESSAGES)


async def _at(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> list[Message]:
    """Messages by their sequences, images captioned as in `_page`."""
    found = await live_messages.at(tx, space, session_id, sequences)
    return await image_descriptions.captioned(tx, space, [found[one] for one in sequences if one in found])


async def _up_to(tx: Tx, space: Space, turn: Turn) -> list[turn_pb.CandidateTurn]:
    """The turns before that one with their views, oldest first, and the turn itself, whose messages tell it whole."""
    earlier = (await turns.before(tx, space, turn.session_id, turn.sequence, LAST_TURNS))[::-1]
    names = [one.turn_id for one in (*earlier, turn)]
    known = await fingerprints.of(tx, space, turn.session_id, names)
    candidates = []
    for one in earlier:
        fingerprint, messages = known.get(one.turn_id), await turns.messages(tx, space, one, MESSAGES)
        captioned = await image_descriptions.captioned(tx, space, messages)
        objective = fingerprint.objective if fingerprint else ""
        view = compressed_view(text_of(one, captioned), objective, Summary.from_text(one.summary))
        candidates.append(_candidate(space.user, one, fingerprint, view))
    return [*candidates, _candidate(space.user, turn, known.get(turn.turn_id))]


async def _uncovered(tx: Tx, space: Space, lease: LeaseId, session_id: str) -> list[turn_pb.CandidateTurn]:
    """Turns of a bucket job. With the turns of the fingerprints, in one transaction: a session that is deleted has
    neither. Raises LeaseLost."""
    found = await turn_outputs.take_uncovered(tx, space, lease)
    there = await turns.find(tx, space, session_id, [one.turn_id for one in found])
    return [_candidate(space.user, there[one.turn_id], one) for one in found]


def _use(usage: Usage) -> pb.UsageChunk:
    if usage.kind == "context":
        return pb.UsageChunk(context_uris=[usage.uri])
    return pb.UsageChunk(skills=[wire_messages.usage_to_wire(usage)])


async def _each(items: Sequence[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item


async def _chunks(items: AsyncIterator[Item]) -> AsyncIterator[list[Item]]:
    """The items in lists of at most CHUNK_BYTES, or of one that is larger."""
    chunk: list[Item] = []
    size = 0
    async for item in items:
        length = item.ByteSize()
        if chunk and size + length > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk
