"""What a task and the usage of an account tell at most."""

from typing import Any

from runekeep.v1 import common_pb2
from runekeep_server.apply.result import MAX_LEFT_OUT_CHARACTERS, of_applied
from runekeep_server.merging.outcome import Outcome
from runekeep_server.protocol.pagination import fitting
from runekeep_server.wire.extractions import usage
from runekeep_server.wire.tasks import result
from runekeep_storage.jobs.spending import COUNTERS


def entry(number: int) -> dict[str, object]:
    return {"reason": "too_large", "memory_type": "events", "uri": "u" * 900, "message": "m" * 500,
            "operation_index": number}  # fmt: skip


def told_of(outcome: Outcome) -> dict[str, Any]:
    return of_applied(outcome, [], {"adds": [], "updates": [], "deletes": []}, 0, kept_besides=False)


def test_a_result_names_as_many_operations_as_there_is_room_for_and_counts_the_others() -> None:
    many = Outcome(rejected=[entry(number) for number in range(2000)])
    told = told_of(many)
    named = len(told["rejected"])
    assert [one["operation_index"] for one in told["rejected"]] == list(range(named))
    assert MAX_LEFT_OUT_CHARACTERS // 1500 <= named < 800 and told["left_out_omitted"] == 2000 - named
    assert told["counts_by_type"] == {"events": {"rejected": 2000}}
    wire = result(told, {"earlier": [], "attempt": []})
    assert wire.left_out_omitted == 2000 - named
    assert "left_out_omitted" not in told_of(Outcome(rejected=[entry(1)]))


def test_usage_that_has_no_room_is_added_up() -> None:
    entries = [{"phase": "p" * 60, "model": f"m{number}", **dict.fromkeys(COUNTERS, 1)} for number in range(100)]
    rows = usage(entries, 2000)
    assert [row.model for row in rows[:-1]] == [f"m{number}" for number in range(len(rows) - 1)]
    rest = 100 - (len(rows) - 1)
    assert (
        rows[-1] == common_pb2.TokenUsage(**dict.fromkeys(COUNTERS, rest)) and fitting(rows[:-1], 2000) == len(rows) - 1
    )
    assert len(usage(entries, 10**6)) == 100
