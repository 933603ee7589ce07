"""Does the jobs about turns without a model: selects earlier turns, reads reactions, fills buckets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.engine.turn_records import fingerprint_from_wire
from runekeep_extractor.offline.language import languages
from runekeep_extractor.offline.turns import meant_by_user
from runekeep_extractor.offline.words import FAR, similarity, stems
from runekeep_schemas.turns.buckets import MAX_ADDED, MAX_BUCKETS, MAX_CHANGED, MAX_SLICE_SIGNALS
from runekeep_schemas.turns.feedback import TEXT_LENGTH
from runekeep_schemas.turns.fingerprint import OBJECTIVE_LENGTH
from runekeep_schemas.turns.selection import MAX_BUCKETS as MAX_SELECTED_BUCKETS
from runekeep_schemas.turns.selection import MAX_LOCAL_MEMORIES, MAX_TURNS
from runekeep_schemas.turns.text import cut, line, signal_text

MAX_TOPICS: Final = 16
MAX_NAME_CHARS: Final = 128
_LISTS: Final = ("assertions", "exceptions", "facts")
# A message of at most this many words continues the newest turn, with a word that points back or without one.
_MAX_WORDS_POINTING_BACK: Final = 4
_MAX_WORDS_CONTINUING: Final = 1
# Minimum similarity of a memory with a wish for the whole conversation, and similarity of the newest turn if the
# message continues it.
_STANDING: Final = (1, 0.0)
_NEWEST: Final = (2, 1.0)
# Up to three words at the beginning, such as `Thanks!`, are not a sentence.
_OPENING: Final = re.compile(r"\A\s*(\w+(?: \w+){0,2}(?:[.!]|\s*\Z))")


def selection_of(job: Job) -> pb.TurnSelection:
    """Returns the turn memories, prior turns and buckets that share enough words with the user's message, the most
    similar first; among equals, the newest. Turn memories with a wish or exclusion for the whole conversation need not
    share words. Neither does the newest turn if the message continues it.
    """
    turn_id, context = job.assignment.turn_id, job.context
    said = [part.text.text for one in job.messages if one.role == common_pb2.ROLE_USER for part in one.parts]
    mine = stems(said)
    newest = context.candidates[0].turn.turn_id if context.candidates and _continues_newest(said, mine) else ""
    memories = [
        (one.turn_id, _similarity_of(mine, one, newest))
        for one in context.turn_memories
        if one.turn_id not in ("", turn_id)
    ]
    turns = [
        (one.turn.turn_id, _NEWEST if one.turn.turn_id == newest else similarity(mine, stems([one.compressed_view])))
        for one in context.candidates
    ]
    buckets = [
        (one.bucket_id, similarity(mine, stems((one.name, *one.topic_centroid, one.objective_text))))
        for one in context.buckets
    ]
    return pb.TurnSelection(
        local_memories_turn_ids=_nearest_ids(memories, MAX_LOCAL_MEMORIES),
        turn_ids=_nearest_ids(turns, MAX_TURNS),
        memory_bucket_ids=_nearest_ids(buckets, MAX_SELECTED_BUCKETS),
    )


def reactions_of(messages: Sequence[common_pb2.Message]) -> list[pb.Feedback]:
    """Returns at most one reaction, about the previous turn, from sentences that the user means."""
    said = [one.text for one in meant_by_user(messages)]
    for one in messages:
        for part in one.parts if one.role == common_pb2.ROLE_USER else ():
            said += _OPENING.findall(part.text.text)
    said = [text for text in said if not text.endswith(("?", "？"))]
    for language in languages():
        # Complaints are checked first: users often thank first and then complain.
        for rule in language.reactions:
            for text in said:
                if rule.pattern.search(language.write_out(text)):
                    return [
                        pb.Feedback(
                            reaction=pb.Reaction.Value(f"REACTION_{rule.reaction.upper()}"),
                            text=cut(line(text), TEXT_LENGTH),
                            origin=pb.FEEDBACK_ORIGIN_MACHINE,
                            confidence=rule.confidence,
                        )
                    ]
    return []


@dataclass(slots=True)
class _Theme:
    """A bucket, existing or new, with the turns to fold into it."""

    bucket: pb.MemoryBucket
    stems: set[str]
    turns: list[pb.Turn] = field(default_factory=list)

    def add(self, turn: pb.Turn) -> None:
        self.turns.append(turn)
        self.stems |= stems(turn.fingerprint.topics)


def reconciled(
    buckets: Sequence[pb.MemoryBucket], turns: Sequence[pb.CandidateTurn]
) -> extractor_service_pb2.BucketChanges:
    """Returns the bucket changes for turns that are in no bucket, oldest first.

    A turn goes to the bucket with which it shares the most words. If it is near none and states something, it gets a
    new bucket, else none. If that would take more changes than one job may make, the remaining turns are left for the
    next job.
    """
    there = [_Theme(bucket, stems((*bucket.topic_centroid, bucket.name))) for bucket in buckets]
    added: list[_Theme] = []
    covered = ""
    for turn in (candidate.turn for candidate in turns):
        theme = _nearest_theme(turn, [*there, *added])
        if theme is None and _states_something(turn) and len(there) + len(added) < MAX_BUCKETS:
            if len(added) == MAX_ADDED:
                break
            theme = _Theme(_new_bucket(turn, [one.bucket.name for one in (*there, *added)]), set())
            added.append(theme)
        elif theme in there and not theme.turns and sum(bool(one.turns) for one in there) == MAX_CHANGED:
            break
        if theme is not None:
            theme.add(turn)
        covered = turn.turn_id
    return extractor_service_pb2.BucketChanges(
        changed=[_changed(theme) for theme in there if theme.turns],
        added=[_filled(theme) for theme in added],
        last_covered_turn_id=covered,
    )


def _continues_newest(said: Sequence[str], mine: set[str]) -> bool:
    if len(mine) <= _MAX_WORDS_CONTINUING:
        return True
    return any(
        language.has("continues", text) or (len(mine) <= _MAX_WORDS_POINTING_BACK and language.has("anaphora", text))
        for language in languages()
        for text in said
    )


def _similarity_of(mine: set[str], memory: pb.TurnFingerprint, newest: str) -> tuple[int, float]:
    if memory.turn_id == newest:
        return _NEWEST
    held = fingerprint_from_wire(memory)
    signals = (*held.assertions, *held.exceptions, *held.facts)
    near = similarity(mine, stems((held.objective, *held.topics, *map(signal_text, signals))))
    standing = any(one.scope == "conversation" for one in (*held.assertions, *held.exceptions))
    return max(near, _STANDING) if standing else near


def _nearest_ids(found: Iterable[tuple[str, tuple[int, float]]], most: int) -> list[str]:
    """Returns ids, the most similar first. The input is newest first and the sort is stable, so ties stay that way."""
    near = [one for one in found if one[1] > FAR]
    return [name for name, _ in sorted(near, key=lambda one: one[1], reverse=True)[:most]]


def _nearest_theme(turn: pb.Turn, themes: Sequence[_Theme]) -> _Theme | None:
    mine = stems(turn.fingerprint.topics) or stems([turn.fingerprint.objective])
    best, found = FAR, None
    for theme in themes:
        if (near := similarity(mine, theme.stems)) > best:
            best, found = near, theme
    return found


def _states_something(turn: pb.Turn) -> bool:
    return bool(turn.fingerprint.topics) and any(getattr(turn.fingerprint, name) for name in _LISTS)


def _new_bucket(turn: pb.Turn, names: Iterable[str]) -> pb.MemoryBucket:
    taken = {name.lower() for name in names}
    topics = turn.fingerprint.topics
    name = next(
        (name for most in range(1, len(topics) + 1) if (name := ", ".join(topics[:most])).lower() not in taken),
        f"{', '.join(topics)} ({turn.turn_id})",
    )
    objective = _objective([turn])
    return pb.MemoryBucket(name=cut(line(name), MAX_NAME_CHARS), short_desc=objective, objective_text=objective)


def _changed(theme: _Theme) -> pb.MemoryBucket:
    """Returns the changes of a bucket; empty fields stay as they are."""
    bucket = theme.bucket
    return pb.MemoryBucket(
        bucket_id=bucket.bucket_id,
        topic_centroid=_topics(bucket.topic_centroid, theme.turns),
        objective_text="" if bucket.objective_text else _objective(theme.turns),
        timeline=[_slice(theme.turns)],
    )


def _filled(theme: _Theme) -> pb.MemoryBucket:
    bucket = pb.MemoryBucket()
    bucket.CopyFrom(theme.bucket)
    bucket.topic_centroid[:] = _topics((), theme.turns)
    bucket.timeline.append(_slice(theme.turns))
    return bucket


def _slice(turns: Sequence[pb.Turn]) -> pb.TimelineSlice:
    return pb.TimelineSlice(
        start_time=min((turn.start_time for turn in turns), key=_moment),
        end_time=max((turn.end_time for turn in turns), key=_moment),
        objective_hint=_objective(turns),
        **{name: _bucket_signals(turns, name) for name in _LISTS},
    )


def _bucket_signals(turns: Sequence[pb.Turn], name: str) -> list[pb.BucketSignal]:
    """Returns the signals of the list `name`, each once, with its supporting turns. If there are too many, the newest
    stay.
    """
    found: dict[tuple[str, bytes, int, str], pb.BucketSignal] = {}
    for turn in turns:
        for signal in getattr(turn.fingerprint, name):
            key = (signal.key, signal.value.SerializeToString(deterministic=True), signal.scope, signal.applies_to)
            before = found.pop(key, None)
            support = dict.fromkeys([*(before.support_turn_ids if before is not None else ()), turn.turn_id])
            made = turn.fingerprint.made_time if turn.fingerprint.HasField("made_time") else turn.end_time
            found[key] = pb.BucketSignal(
                signal=signal, last_seen_time=made, support_turn_ids=list(support)[-MAX_SLICE_SIGNALS:]
            )
    return list(found.values())[-MAX_SLICE_SIGNALS:]


def _objective(turns: Sequence[pb.Turn]) -> str:
    """Returns the objective of the newest turn that has one."""
    objectives = (turn.fingerprint.objective for turn in reversed(turns))
    return cut(line(next(filter(None, objectives), "")), OBJECTIVE_LENGTH)


def _topics(there: Iterable[str], turns: Sequence[pb.Turn]) -> list[str]:
    return list(dict.fromkeys([*there, *(topic for turn in turns for topic in turn.fingerprint.topics)]))[:MAX_TOPICS]


def _moment(time: Timestamp) -> tuple[int, int]:
    return time.seconds, time.nanos
