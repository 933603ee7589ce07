"""Streams the input of a job to its worker in pieces, depending on the job's kind."""

import json
from asyncio import to_thread
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from runekeep_common.tokens import BYTES_A_TOKEN
from runekeep_schemas.policy import Plan
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.turns.buckets import shown
from runekeep_schemas.turns.fingerprint import Fingerprint, Query
from runekeep_schemas.turns.selection import Offer
from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.views import compressed_view
from runekeep_schemas.turns.window import LAST_TURNS, MAX_LAST
from runekeep_server.memories.recalled_statements import recalled_statements
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES, AnswerSizes
from runekeep_server.protocol.truncation import shorten
from runekeep_server.turns import context
from runekeep_server.turns.texts import MESSAGES, text_of
from runekeep_server.wire import memories as wire_memories
from runekeep_server.wire import messages as wire_messages
from runekeep_server.wire.turns import bucket_to_wire, query_to_wire, turn_to_wire
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common.byte_limits import count_within
from runekeep_storage.errors import DataDamaged, NotFound
from runekeep_storage.index.base import IndexUnavailable
from runekeep_storage.jobs import asks, jobs
from runekeep_storage.memories import turn_outputs
from runekeep_storage.records import STORED_OUTPUT, Archive, Job, LeaseId, Message, Turn, Usage
from runekeep_storage.search import live_messages
from runekeep_storage.sessions import archives, image_descriptions, sessions
from runekeep_storage.store import Store
from runekeep_storage.turns import buckets, fingerprints, turns
from runekeep_storage.turns import jobs as turn_jobs

CHUNK_BYTES = 768 * 1024
"""Maximum bytes of messages, turns, buckets or usages in one piece of a job's input. A larger item is a piece by
itself."""
PAGE = 200
"""Messages of one read from the store, and sequences of an archive for which one read finds the turns."""
PAGE_BYTES = 4 * 1024 * 1024
"""Maximum bytes of messages or usages of one read from the store. A larger item is read by itself."""
TURN_MESSAGES = 100
"""Number of first messages, and of last ones, of a turn from which a fingerprint is made."""

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
        """Yields the input of a job whose lease is held, in the order of the contract. Raises LeaseLost."""
        match job.kind:
            case jobs.TURN_FINGERPRINT:
                found = self._turn_pieces(job)
            case jobs.BUCKET_RECONCILE:
                found = self._bucket_pieces(job)
            case jobs.ASK:
                found = self._question_pieces(job)
            case _:
                found = self._commit_pieces(job)
        async for piece in found:
            yield piece

    # Commits

    async def _commit_pieces(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        types = self._types(Plan.from_json(json.loads(job.plan)))
        yield pb.GetJobInputResponse(memory_types=pb.MemoryTypeChunk(memory_types=types))
        loaded = await self._store.database.read(_load_commit, jobs.space_of(job), job.lease)
        async for messages in _chunks(self._messages(job, loaded)):
            yield pb.GetJobInputResponse(messages=pb.MessageChunk(messages=messages))
        async for turns_ in _chunks(self._turns_of(job, loaded)):
            yield pb.GetJobInputResponse(turns=pb.TurnChunk(turns=turns_))
        async for uses in _chunks(self._usages(job, loaded)):
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

    async def _messages(self, job: Job, loaded: "_LoadedJob") -> AsyncIterator[common_pb2.Message]:
        """Yields the messages of the job's archive, with whole tool outputs."""
        space, last = jobs.space_of(job), loaded.archive.last_sequence
        page = loaded.messages
        while page:
            for message in page:
                yield await self._load_whole(space, message)
            first = page[-1].sequence + 1
            if first > last:
                return
            page = await self._store.database.read(_read_page, space, job.session_id, first, last)

    async def _usages(self, job: Job, loaded: "_LoadedJob") -> AsyncIterator[pb.UsageChunk]:
        """Yields an empty chunk, then one usage each: the input ends with usage even if nothing was used."""
        yield pb.UsageChunk()
        space, (page, after) = jobs.space_of(job), loaded.usages
        while True:
            for usage in page:
                use = _usage_chunk(usage)
                shorten(use, self._sizes.record)
                yield use
            if not after:
                return
            page, after = await self._store.database.read(
                sessions.usages_page, space, job.session_id, job.archive_index, after, PAGE, PAGE_BYTES
            )

    async def _turns_of(self, job: Job, loaded: "_LoadedJob") -> AsyncIterator[turn_pb.CandidateTurn]:
        """Yields each turn with messages in the archive once, without a compressed view: its messages are in the input
        already."""
        space, archive = jobs.space_of(job), loaded.archive
        sent: set[str] = set()
        for first in range(archive.first_sequence, archive.last_sequence + 1, PAGE):
            if first == archive.first_sequence:
                page, known = loaded.turns
            else:
                page, known = await self._store.database.read(_read_turns, space, job.session_id, first, archive)
            for turn in page:
                if turn.turn_id not in sent:
                    sent.add(turn.turn_id)
                    yield _candidate(job.user, turn, known.get(turn.turn_id))

    async def _load_whole(self, space: Space, message: Message) -> common_pb2.Message:
        """Returns the message with whole tool outputs, cut to the size of an answer."""
        whole = wire_messages.to_wire(await self._restore_outputs(space, message))
        if whole.ByteSize() > self._sizes.record:
            await to_thread(shorten, whole, self._sizes.record)
        return whole

    async def _restore_outputs(self, space: Space, message: Message) -> Message:
        """Returns the message with externalized tool outputs restored."""
        parts = []
        for part in message.parts:
            blob = part.get(STORED_OUTPUT)
            if blob is not None:
                try:
                    part = {**part, "output": (await to_thread(self._store.blobs.get, space, blob)).decode()}
                except (DataDamaged, NotFound):
                    # The output is lost. The commit continues with the preview, and the text tells the model.
                    part = {**part, "output": part["output"] + DAMAGED_OUTPUT}
            parts.append(part)
        return replace(message, parts=tuple(parts))

    # Turns and buckets

    async def _turn_pieces(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        space, turn_id = jobs.space_of(job), turn_outputs.turn_of(job)
        turn, ends = await self._store.database.read(_read_turn, space, job.lease, turn_id)
        async for some in _chunks(self._turn_messages(space, turn, ends)):
            yield pb.GetJobInputResponse(messages=pb.MessageChunk(messages=some))
        candidates = await self._store.database.read(_read_candidates, space, turn)
        async for turns_ in _chunks(_each(candidates)):
            yield pb.GetJobInputResponse(turns=pb.TurnChunk(turns=turns_))
        wanted = turn_jobs.reconciliation_of(job.plan)
        if wanted.is_wanted:
            yield pb.GetJobInputResponse(context=await self._load_context(job, turn_id, wanted.queries))

    async def _load_context(self, job: Job, turn_id: str, queries: Sequence[Query]) -> turn_pb.LoadTurnContextResponse:
        """Returns the turn context for a reconciler. The offer contains only earlier turns, and is stored with the job.
        Raises LeaseLost."""
        space = jobs.space_of(job)
        request = turn_pb.LoadTurnContextRequest(
            session=job.session_id,
            current_turn_id=turn_id,
            audience=turn_pb.CONTEXT_AUDIENCE_RECONCILER,
            last_turns=MAX_LAST,
            ctx_retrieval_queries=map(query_to_wire, queries),
            render=True,
        )
        shown = await context.load(
            self._store, space, request, buckets_enabled=self._buckets_enabled, most_bytes=self._sizes.record
        )
        offer = Offer.decode(shown.offer)
        earlier = tuple(one for one in offer.turn_ids if one != turn_id)
        shown.offer = replace(offer, turn_ids=earlier).encode()
        await self._store.database.write(turn_outputs.take_context, space, job.lease, shown.offer)
        return shown

    async def _turn_messages(
        self, space: Space, turn: Turn, ends: Sequence[tuple[int, int]]
    ) -> AsyncIterator[common_pb2.Message]:
        """Yields whole messages of a turn. `ends`: their sequences, each with its number of tokens."""
        while ends:
            count = count_within([in_tokens * BYTES_A_TOKEN for _, in_tokens in ends], PAGE_BYTES)
            sequences, ends = [sequence for sequence, _ in ends[:count]], ends[count:]
            for message in await self._store.database.read(_read_messages, space, turn.session_id, sequences):
                yield await self._load_whole(space, message)

    async def _bucket_pieces(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        space, database = jobs.space_of(job), self._store.database
        found = await buckets.load(database, self._store.blobs, space, job.session_id)
        wire = [bucket_to_wire(job.user, job.session_id, shown(one.bucket)) for one in found]
        async for some in _chunks(_each(wire)):
            yield pb.GetJobInputResponse(buckets=pb.BucketChunk(buckets=some))
        candidates = await database.write(_take_uncovered, space, job.lease, job.session_id)
        async for turns_ in _chunks(_each(candidates)):
            yield pb.GetJobInputResponse(turns=pb.TurnChunk(turns=turns_))

    # Questions

    async def _question_pieces(self, job: Job) -> AsyncIterator[pb.GetJobInputResponse]:
        question = asks.question_of(job)
        try:
            # The model reads memory as it is. Its answer is scanned for secrets.
            found = await recalled_statements(self._store, jobs.space_of(job), question, withhold_secrets=False)
            recalled = found.statements
        except IndexUnavailable:
            # The worker can still read documents.
            recalled = []
        yield pb.GetJobInputResponse(question=pb.QuestionChunk(question=question, recalled=recalled))


def _candidate(user: str, turn: Turn, fingerprint: Fingerprint | None, view: str = "") -> turn_pb.CandidateTurn:
    summary = Summary.from_text(turn.summary)
    return turn_pb.CandidateTurn(turn=turn_to_wire(user, turn, fingerprint, summary), compressed_view=view)


async def _read_page(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[Message]:
    """Returns messages with the known image descriptions, so that no model has to describe, and bill, the images
    again."""
    messages, _ = await sessions.messages_page(tx, space, session_id, first, last, PAGE, PAGE_BYTES)
    return await image_descriptions.captioned(tx, space, messages)


_Turns = tuple[list[Turn], dict[str, Fingerprint]]
"""Turns, and the fingerprints that exist."""


@dataclass(frozen=True, slots=True)
class _LoadedJob:
    """The part of a commit's input that one transaction reads: everything for most archives. `messages`: the first
    PAGE; `turns`: those with messages among the first PAGE sequences. `usages`: the first ones, and the number after
    which others follow, or 0."""

    archive: Archive
    usages: tuple[list[Usage], int]
    messages: list[Message]
    turns: _Turns


async def _load_commit(tx: Tx, space: Space, lease: LeaseId) -> _LoadedJob:
    """Reads the first part of a commit's input. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    archive = await archives.get(tx, space, job.session_id, job.archive_index)
    first = archive.first_sequence
    return _LoadedJob(
        archive,
        await sessions.usages_page(tx, space, job.session_id, job.archive_index, 0, PAGE, PAGE_BYTES),
        await _read_page(tx, space, job.session_id, first, archive.last_sequence),
        await _read_turns(tx, space, job.session_id, first, archive),
    )


async def _read_turns(tx: Tx, space: Space, session_id: str, first: int, archive: Archive) -> _Turns:
    """Returns the turns with messages among PAGE sequences of the archive, starting at `first`."""
    last = min(first + PAGE - 1, archive.last_sequence)
    found = await turns.between(tx, space, session_id, first, last)
    return found, await fingerprints.of(tx, space, session_id, [turn.turn_id for turn in found])


async def _read_turn(tx: Tx, space: Space, lease: LeaseId, turn_id: str) -> tuple[Turn, list[tuple[int, int]]]:
    """Returns the turn of a fingerprint job, and sequences and token counts of its messages, or of the first and last
    ones of a long turn."""
    job = await jobs.held(tx, lease, space)
    turn = await turns.get(tx, space, job.session_id, turn_id)
    return turn, await turns.ends(tx, space, turn, TURN_MESSAGES)


async def _read_messages(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> list[Message]:
    """Returns messages by their sequences, with image descriptions as in `_read_page`."""
    found = await live_messages.at(tx, space, session_id, sequences)
    return await image_descriptions.captioned(tx, space, [found[one] for one in sequences if one in found])


async def _read_candidates(tx: Tx, space: Space, turn: Turn) -> list[turn_pb.CandidateTurn]:
    """Returns the turns before `turn` with their compressed views, oldest first, then `turn` itself without a view,
    because the input contains its messages."""
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


async def _take_uncovered(tx: Tx, space: Space, lease: LeaseId, session_id: str) -> list[turn_pb.CandidateTurn]:
    """Returns the turns of a bucket job. Fingerprints and turns are read in one transaction, because deleting a session
    removes both. Raises LeaseLost."""
    found = await turn_outputs.take_uncovered(tx, space, lease)
    turns_by_id = await turns.find(tx, space, session_id, [one.turn_id for one in found])
    return [_candidate(space.user, turns_by_id[one.turn_id], one) for one in found]


def _usage_chunk(usage: Usage) -> pb.UsageChunk:
    if usage.kind == "context":
        return pb.UsageChunk(context_uris=[usage.uri])
    return pb.UsageChunk(skills=[wire_messages.usage_to_wire(usage)])


async def _each(items: Sequence[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item


async def _chunks(items: AsyncIterator[Item]) -> AsyncIterator[list[Item]]:
    """Yields the items in lists of at most CHUNK_BYTES. A larger item is a list by itself."""
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
