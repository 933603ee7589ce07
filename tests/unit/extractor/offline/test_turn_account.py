"""What the assistant says that it did, left open and promoted."""

import pytest

from runekeep.v1 import task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.offline import OfflineEngine
from tests.doubles.fixed_job import FixedJob, message
from tests.unit.extractor.turn_reading import memory_of

SPEC = "upgrade: the premium plan"


def told(*answers: str) -> pb.TurnSummary:
    return memory_of("See to it, please.", answers=answers).summary


@pytest.mark.parametrize(
    ("answer", "done", "not_done"),
    [
        ("I have booked the hotel.", ["I have booked the hotel."], []),
        ("Nothing has been sent yet.", [], ["Nothing has been sent yet."]),
        ("No mails have been sent.", [], ["No mails have been sent."]),
        ("The invoice has not been sent.", [], ["The invoice has not been sent."]),
        ("If I have booked the hotel, you will get a mail.", [], []),
        ("Once I've created the table, I will send it.", [], []),
        ("I'll tell you when I have sent it.", [], []),
        ("If I can't reserve the car, I will call you.", [], []),
        ("I would have booked it.", [], []),
        ("I never booked it.", [], []),
        ('The mail says "I have booked the hotel".', [], []),
        ('The subject is "I have booked the hotel".', [], []),
        ("You said I have booked the hotel.", [], []),
        ("You wrote “I could not sleep” in your diary.", [], []),
        (
            "I have booked the hotel but could not reserve the car.",
            ["I have booked the hotel"],
            ["could not reserve the car."],
        ),
        (
            "I have sent the mail; I could not attach the file.",
            ["I have sent the mail"],
            ["I could not attach the file."],
        ),
        # What was done to it does not say that it is done.
        (
            "I updated the sheet, which is still missing two rows.",
            [],
            ["I updated the sheet, which is still missing two rows."],
        ),
        ("Unfortunately, the hotel is sold out.", [], ["Unfortunately, the hotel is sold out."]),
        ("Unfortunately the basic one is gone, so I recommend the premium plan.", [], []),
        ("I can't recommend it enough.", [], []),
    ],
)
def test_only_what_is_told_as_done_is_done(answer, done, not_done):
    summary = told(answer)
    assert list(summary.done) == done
    assert list(summary.not_done) == not_done


@pytest.mark.parametrize(
    "answer", ["There is no risk at all.", "This is risk-free.", "Without any risk you can cancel."]
)
def test_a_denied_risk_is_none(answer):
    assert list(told(answer).risks) == []
    assert list(told("There is a risk of rain.").risks) == ["There is a risk of rain."]


def promoted(answer: str) -> list[tuple[str, int]]:
    found = memory_of("Which one?", answers=[answer], spec=SPEC).fingerprint.assistant_signals
    return [(one.value.string_value, one.severity) for one in found]


@pytest.mark.parametrize(
    "answer",
    [
        "I never recommended the premium plan.",
        "You asked whether the premium plan is worth it.",
        "You said that you love the premium plan.",
        "Don't buy the premium plan.",
        "The premium plan is too expensive for you.",
        "You don't need the premium plan.",
        "Rather than the premium plan, take the basic one.",
        "The basic plan is better than the premium plan.",
        "Some say the premium plan is the best choice.",
    ],
)
def test_what_is_said_against_a_thing_or_by_others_promotes_nothing(answer):
    assert promoted(answer) == []


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (
            "Unfortunately the basic one is gone, so I recommend the premium plan.",
            [("premium plan", pb.SIGNAL_SEVERITY_RECOMMEND)],
        ),
        ("I strongly recommend the premium plan.", [("premium plan", pb.SIGNAL_SEVERITY_STRONG_PROMOTE)]),
        ("You can't go wrong with the premium plan.", [("premium plan", pb.SIGNAL_SEVERITY_STRONG_PROMOTE)]),
        ("Is the premium plan the best choice for you?", []),
    ],
)
def test_what_is_said_for_it_does(answer, found):
    assert promoted(answer) == found


@pytest.mark.parametrize(("turns", "said"), [(1, "1 turn, 0 buckets"), (2, "2 turns, 0 buckets")])
async def test_a_progress_message_counts_one_thing_as_one(turns, said):
    candidates = [pb.CandidateTurn(turn=pb.Turn(turn_id=f"t{number}")) for number in range(turns)]
    job = FixedJob([message(1, "Hello.")], kind=task_service_pb2.TASK_KIND_BUCKET_RECONCILE, turns=candidates)
    await OfflineEngine().reconcile(job)
    assert said in job.reports[0]
