"""Selects the earlier turns, turn memories and buckets that share words with the current turn."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from extractor.engine import Job
from extractor.offline.turns.nearness import FAR, nearness, stems
from extractor.turn_wire import fingerprint_from_wire
from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from schemas.turns.selection import MOST_BUCKETS, MOST_LOCAL_MEMORIES, MOST_TURNS
from schemas.turns.text import signal_text

# Cues that a message continues the newest turn. A cue applies only to messages with at most so many content words.
_CONTINUATION_CUES: Final = (
    (99, re.compile(r"^\W*(?:and|but|or|then|also|what about|how about|und|aber|oder|et|mais|y|pero)\b", re.I)),
    (
        4,
        re.compile(
            r"\b(?:it|its|them|those|(?:that|this) one|the (?:first|second|third|last|other) one|instead|again)\b", re.I
        ),
    ),
    (1, re.compile("")),
)
# Similarity that a memory with a wish for the whole conversation has at least, and that the newest turn has if the
# message continues it.
_STANDING: Final = (1, 0.0)
_NEWEST: Final = (2, 1.0)


def selection_of(job: Job) -> pb.TurnSelection:
    """Returns the turn memories, prior turns and buckets that share enough words with the user's message, the most
    similar first; among equals, the newest. Turn memories with a wish or exclusion for the whole conversation need not
    share words, nor need the newest turn if the message continues it."""
    turn_id, context = job.assignment.turn_id, job.context
    said = [part.text.text for one in job.messages if one.role == common_pb2.ROLE_USER for part in one.parts]
    mine = stems(said)
    newest = context.candidates[0].turn.turn_id if context.candidates and _continues_newest(said, mine) else ""
    memories = [
        (one.turn_id, _near(mine, one, newest)) for one in context.turn_memories if one.turn_id not in ("", turn_id)
    ]
    turns = [
        (one.turn.turn_id, _NEWEST if one.turn.turn_id == newest else nearness(mine, stems([one.compressed_view])))
        for one in context.candidates
    ]
    buckets = [
        (one.bucket_id, nearness(mine, stems((one.name, *one.topic_centroid, one.objective_text))))
        for one in context.buckets
    ]
    return pb.TurnSelection(
        local_memories_turn_ids=_nearest(memories, MOST_LOCAL_MEMORIES),
        turn_ids=_nearest(turns, MOST_TURNS),
        memory_bucket_ids=_nearest(buckets, MOST_BUCKETS),
    )


def _continues_newest(said: Sequence[str], mine: set[str]) -> bool:
    return any(len(mine) <= most and cue.search(text) for most, cue in _CONTINUATION_CUES for text in said)


def _near(mine: set[str], memory: pb.TurnFingerprint, newest: str) -> tuple[int, float]:
    if memory.turn_id == newest:
        return _NEWEST
    held = fingerprint_from_wire(memory)
    signals = (*held.assertions, *held.exceptions, *held.facts)
    near = nearness(mine, stems((held.objective, *held.topics, *map(signal_text, signals))))
    standing = any(one.scope == "conversation" for one in (*held.assertions, *held.exceptions))
    return max(near, _STANDING) if standing else near


def _nearest(found: Iterable[tuple[str, tuple[int, float]]], most: int) -> list[str]:
    """Returns ids, the most similar first. The input is newest first and the sort is stable, so ties stay that way."""
    near = [one for one in found if one[1] > FAR]
    return [name for name, _ in sorted(near, key=lambda one: one[1], reverse=True)[:most]]
