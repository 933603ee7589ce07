"""What a commit does with the turns of its batch: memories of those that have none, and fingerprints as evidence."""

import pytest

from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.engine.turn_records import signal_to_wire
from runekeep_extractor.offline import OfflineEngine
from runekeep_schemas.turns.fingerprint import Signal
from tests.doubles.fixed_job import message
from tests.unit.extractor.embedding_job import EmbeddingJob, Space

# Nothing in it shows by itself that it is more than talk.
UNSURE = "Oat milk in everything."


def said(sequence: int, text: str, turn_id: str, **more) -> common_pb2.Message:
    made = message(sequence, text, **more)
    made.turn_id = turn_id
    return made


def turn(turn_id: str, start: int = 1, fingerprint: bool = True, **lists) -> pb.CandidateTurn:
    made = pb.CandidateTurn(turn=pb.Turn(turn_id=turn_id, messages=common_pb2.MessageRange(start_sequence=start)))
    if fingerprint:
        made.turn.fingerprint.objective = "Talk about breakfast"
    for name, signals in lists.items():
        getattr(made.turn.fingerprint, name).extend(map(signal_to_wire, signals))
    return made


async def kept(embedder, messages, turns) -> list[str]:
    """Paths of the memories that a commit makes."""
    job = EmbeddingJob(messages, turns=turns, summarize=False)
    job.embedder = embedder
    space = Space()
    space.apply(await OfflineEngine().extract(job))
    return space.paths()


async def test_turns_without_a_fingerprint_get_one(embedder):
    messages = [
        said(3, "Plan my garden, please. I prefer roses.", "t1"),
        said(4, "Here is a plan.", "t1", role=common_pb2.ROLE_ASSISTANT),
        said(5, "Find a hotel under 90 euros.", "t2"),
        said(6, "Never mind the hotel.", "t3"),
        said(7, "No turn at all.", ""),
    ]
    turns = [
        turn("t1", 3, fingerprint=False),
        turn("t2", 5),
        turn("t3", 6, fingerprint=False),
        turn("gone", fingerprint=False),
    ]
    job = EmbeddingJob(messages, turns=turns)
    job.embedder = embedder
    output = await OfflineEngine().extract(job)
    assert [one.turn_id for one in output.turn_memories] == ["t1", "t3"]
    first = output.turn_memories[0]
    assert first.fingerprint.objective == "Plan my garden, please."
    assert [one.key for one in first.fingerprint.assertions] == ["rose"]
    assert list(first.fingerprint.assistant_signals) == [], "a commit has no spec"
    assert first.fingerprint.conversation_title == "", "its session began before"
    assert first.summary.delivered_to_user == "Here is a plan."


async def test_only_the_first_turn_of_a_session_gets_a_title(embedder):
    messages = [said(1, "Plan my garden.", "t1"), said(2, "Find a gardener.", "t2")]
    job = EmbeddingJob(messages, turns=[turn("t1", 1, fingerprint=False), turn("t2", 2, fingerprint=False)])
    job.embedder = embedder
    output = await OfflineEngine().extract(job)
    assert [one.fingerprint.conversation_title for one in output.turn_memories] == ["Plan my garden", ""]


async def test_what_a_reconciler_called_a_wish_is_kept_where_the_rules_were_unsure(embedder):
    messages = [said(1, UNSURE, "t1", speaker="Ana")]
    assert await kept(embedder, messages, [turn("t1")]) == []
    wish = Signal("drink", "oat milk", "must")
    assert await kept(embedder, messages, [turn("t1", assertions=[wish])]) == ["memories/preferences/Oat milk.md"]


async def test_what_it_called_a_plain_fact_is_kept_too(embedder):
    messages = [said(1, "Evenings are for my pottery.", "t1", speaker="Ana")]
    assert await kept(embedder, messages, [turn("t1")]) == []
    fact = Signal("hobby", "pottery", "high")
    assert await kept(embedder, messages, [turn("t1", facts=[fact])]) == ["memories/profile.md"]


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        (UNSURE, {"assertions": [Signal("drink", "oat milk", "allow")]}),
        (UNSURE, {"assertions": [Signal("drink", "oat milk", "must", "objective")]}),
        (UNSURE, {"assertions": [Signal("drink", "soy milk", "must")]}),
        (UNSURE, {"assertions": [Signal("drink", 1, "must")]}),
        (UNSURE, {"facts": [Signal("drink", "oat milk", "medium")]}),
        (UNSURE, {"exceptions": [Signal("drink", "oat milk", "do_not")]}),
        # Against these the rules have a reason.
        ("Would you like oat milk with it?", {"assertions": [Signal("drink", "oat milk", "must")]}),
        ("My aunt said that oat milk is for cats.", {"assertions": [Signal("drink", "oat milk", "must")]}),
        ("If I were a barista I would take oat milk.", {"assertions": [Signal("drink", "oat milk", "must")]}),
        ("Find me a shop with oat milk.", {"assertions": [Signal("drink", "oat milk", "must")]}),
    ],
)
async def test_nothing_else_counts_as_evidence(embedder, text, lists):
    messages = [said(1, text, "t1", speaker="Ana")]
    assert await kept(embedder, messages, [turn("t1", **lists)]) == await kept(embedder, messages, [])


async def test_a_fingerprint_speaks_for_its_own_turn_and_for_its_user(embedder):
    wish = turn("t1", assertions=[Signal("drink", "oat milk", "must")])
    assert await kept(embedder, [said(1, "Hello there.", "t1"), said(2, UNSURE, "t2")], [wish, turn("t2", 2)]) == []
    assert await kept(embedder, [said(1, UNSURE, "t1", role=common_pb2.ROLE_ASSISTANT)], [wish]) == []
