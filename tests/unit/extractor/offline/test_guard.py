"""A rule that raises costs what it was asked about, and says so; it never costs the commit."""

import sys

import pytest
from structlog.testing import capture_logs

from runekeep.v1 import common_pb2
from runekeep_extractor.offline import OfflineEngine
from runekeep_extractor.offline.guard import RuleGuard
from runekeep_extractor.rpc.calls import LeaseLost
from tests.doubles.fixed_job import message
from tests.fuzz.conversations import run
from tests.unit.extractor.embedding_job import EmbeddingJob, Space

TALK = [
    message(1, "I live in Porto with my brother.", speaker="Ana"),
    message(2, "My sister Clara lives in Oslo.", speaker="Ana"),
    message(3, "I prefer green tea to coffee.", speaker="Ana"),
]


def broken(*arguments, **options):
    raise KeyError("the words of somebody")


async def broken_later(*arguments, **options):
    raise KeyError("the words of somebody")


@pytest.mark.parametrize(
    ("place", "rule", "later"),
    [
        ("runekeep_extractor.offline.engine.calls_of", "tool_calls", False),
        ("runekeep_extractor.offline.engine.confirmed_by_turns", "evidence_of_turns", False),
        ("runekeep_extractor.offline.memory_changes._correct", "corrections", False),
        ("runekeep_extractor.offline.memory_changes._without_repeats", "repeats", False),
        ("runekeep_extractor.offline.memory_changes.Known.look_up", "known", True),
        ("runekeep_extractor.offline.memory_changes._read_profiles", "profiles", True),
    ],
)
async def test_the_rest_of_the_commit_is_kept(place, rule, later, monkeypatch):
    monkeypatch.setattr(place, broken_later if later else broken)
    with capture_logs() as logs:
        output = await OfflineEngine().extract(EmbeddingJob(TALK))
    assert output.operations and output.summary is not None
    assert output.skipped_rules == {rule: 1}
    (entry,) = [log for log in logs if log["event"] == "rule_skipped"]
    assert (entry["rule"], entry["error"]) == (rule, "KeyError")
    assert "somebody" not in str(logs)


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        ("runekeep_extractor.offline.engine.classify", "classify"),
        ("runekeep_extractor.offline.memory_changes._type_of", "memories"),
    ],
)
async def test_what_lies_between_the_rules_costs_no_commit_either(place, rule, monkeypatch):
    """The result still has the summary, with the tool calls."""
    monkeypatch.setattr(place, broken)
    call = message(4, "")
    call.parts[0].tool.tool_id, call.parts[0].tool.tool_name = "c1", "grep"
    call.parts[0].tool.status = common_pb2.TOOL_STATUS_COMPLETED
    output = await OfflineEngine().extract(EmbeddingJob([*TALK, call]))
    assert output.operations == [] and output.skipped_rules == {rule: 1}
    assert output.summary is not None and "Tool `grep`: 1 called" in output.summary.overview


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        ("runekeep_extractor.offline.statements._read_clause", "statements"),
        ("runekeep_extractor.offline.memory_changes._draft", "drafts"),
    ],
)
async def test_a_sentence_that_a_rule_cannot_read_is_left_out_alone(place, rule, monkeypatch):
    def fragile(about, *rest):
        if "Clara" in str(getattr(about, "text", about)):
            raise ValueError(about)
        return original(about, *rest)

    module, _, name = place.rpartition(".")
    original = getattr(sys.modules[module], name)
    monkeypatch.setattr(place, fragile)
    space = Space()
    output = await OfflineEngine().extract(EmbeddingJob(TALK))
    space.apply(output)
    assert output.skipped_rules == {rule: 1}
    assert "Porto" in space.text("memories/profile.md")
    assert not any("Clara" in path for path in space.paths())


async def test_a_lost_lease_ends_the_attempt():
    async def lost():
        raise LeaseLost

    guard = RuleGuard()
    with pytest.raises(LeaseLost):
        await guard.wait("any", lost(), None)
    assert not guard.skipped


@pytest.mark.parametrize(("engine", "count"), [("offline", 240), ("anthropic", 30)])
async def test_random_conversations_break_no_rule(engine, count):
    ran, faults = await run(seed=577113, count=count, said=[], engine=engine)
    assert (ran, dict(faults)) == (count, {})
