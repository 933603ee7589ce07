"""The bench counts rightly, on a conversation of our own in the data set's form."""

import pytest

from runekeep_extractor.engine.interface import EngineOutput
from runekeep_extractor.offline.operation_builders import delete, write
from runekeep_schemas.type_files.registry import Registry
from tests.bench.offline.locomo import Kept, conversations, measure
from tests.doubles.fixed_job import wire_type

CHAT = {
    "sample_id": "own-1",
    "conversation": {
        "speaker_a": "Ana",
        "session_2_date_time": "9:05 am on 9 May, 2023",
        "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "Fine."}],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "I moved."},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Oh!"},
            {"speaker": "Ana", "dia_id": "D1:3", "text": "To Bruges."},
        ],
    },
    "observation": {"session_1_observation": {"Ana": [["Ana moved.", ["D1:1", "D1:3"]]], "Bo": []}},
    "qa": [
        {"category": 1, "evidence": ["D1:3; D2:1"]},
        {"category": 5, "evidence": ["D1:2"]},
        {"category": 4, "evidence": ["D9:9"]},
    ],
}


def test_what_is_kept_is_counted_by_the_messages_that_memories_cite():
    (chat,) = conversations([CHAT])
    assert chat.turns == ("D1:1", "D1:2", "D1:3", "D2:1")
    assert chat.messages[3].create_time.ToDatetime().isoformat() == "2023-05-09T09:05:00"
    assert (chat.observed, chat.evidence) == ({"D1:1", "D1:3"}, {"D1:3", "D2:1"})
    events = wire_type(Registry.load()["events"])
    made = [
        write(events, {"content": "x"}, peer_id="", sequences=sequences, reason="said") for sequences in ([1, 2], [4])
    ]
    gone = delete("viking://user/default/memories/x.md", peer_id="", sequences=[3], reason="said")
    kept = measure(chat, EngineOutput(operations=[*made, gone]))
    assert kept == Kept(
        turns=4,
        kept=3,
        observed=2,
        observed_kept=1,
        evidence=2,
        evidence_kept=1,
        memories=2,
        memories_observed=1,
    )
    both = Kept.sum([kept, kept])
    assert (both.turns, both.figures()["evidence_recall"]) == (8, 0.5)
    assert both.figures()["turn_precision"] == pytest.approx(1 / 3, abs=1e-4)
