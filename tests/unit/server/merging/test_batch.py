"""Messages that ranges select, by runs, against the same looked at one by one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_server.merging.batch import Batch, joined
from runekeep_storage.memories import origins
from runekeep_storage.memories.origins import runs_of
from runekeep_storage.records import Message

OWNERS = ("", "anna", "bert")
Spans = list[tuple[int, int]]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Message], Spans]:
    """Messages of which some are missing, as where they were erased, and ranges that may leave them or overlap."""
    sequences = draw(st.lists(st.integers(5, 25), unique=True))
    messages = [
        Message(f"m{one}", "user", (), peer_id=draw(st.sampled_from(OWNERS)), sequence=one) for one in sequences
    ]
    ends = st.integers(4, 26)
    return messages, draw(st.lists(st.tuples(ends, ends), max_size=4))


def sequences_of(messages: Sequence[Message]) -> list[int]:
    return [message.sequence for message in messages]


def ids_of(sequences: Sequence[int]) -> list[str]:
    return [f"m{one}" for one in sequences]


def expand(runs: Spans) -> list[int]:
    return [sequence for first, last in runs for sequence in range(first, last + 1)]


@given(batches(), st.integers(0, 6))
def test_a_selection_holds_the_messages_of_its_ranges(made: tuple[list[Message], Spans], most: int) -> None:
    messages, spans = made
    there = {message.sequence: message.peer_id for message in messages}

    batch = Batch(messages)
    selected = batch.select(spans)

    if not all(first <= last and first in there and last in there for first, last in spans):
        assert selected is None
        return
    assert selected is not None
    wanted = sorted({one for span in spans for one in expand([span])} & there.keys())
    assert selected.owners() == {there[one] for one in wanted}
    for owner in (None, *OWNERS, "of nobody"):
        some = selected if owner is None else selected.of_owner(owner)
        of_owner = [one for one in wanted if owner in (None, there[one])]
        assert (len(some), bool(some)) == (len(of_owner), bool(of_owner))
        runs = some.runs()
        assert batch.ids(runs) == ids_of(of_owner) and some.run_count == len(runs)
        assert batch.id_characters(runs) == sum(map(len, ids_of(of_owner)))
        places = [sorted(there).index(one) for one in of_owner]
        assert len(runs) == sum(place - 1 not in places for place in places), "the fewest"
        spans_of_everybody, whole = some.coarser()
        assert not of_owner or batch.ids(whole.runs()) == ids_of(
            [one for one in sorted(there) if of_owner[0] <= one <= of_owner[-1]]
        )
        assert {*batch.ids(runs)} <= {*batch.ids(spans_of_everybody.runs())} <= {*batch.ids(whole.runs())}
        assert spans_of_everybody.run_count <= max(len(spans), 0) and whole.run_count <= 1
        assert sequences_of(some.newest(most)) == of_owner[max(0, len(of_owner) - most) :]


@given(batches())
def test_everything_is_the_whole_batch(made: tuple[list[Message], Spans]) -> None:
    messages, _ = made
    batch = Batch(messages)

    assert batch.ids(batch.everything.runs()) == ids_of(sorted(sequences_of(messages)))
    assert len(batch.everything) == len(messages) and not batch.nothing


RUNS = st.lists(st.integers(1, 40), unique=True).map(lambda some: runs_of(sorted(some)))


@given(RUNS, RUNS)
def test_joined_runs_are_the_fewest_that_hold_both(some: Spans, more: Spans) -> None:
    assert joined(some, more) == runs_of(sorted({*expand(some), *expand(more)}))


@given(batches(), st.integers(1, 30))
def test_runs_are_stored_across_what_was_erased_and_within_blocks(
    made: tuple[list[Message], Spans], block: int
) -> None:
    messages, _ = made
    there = sorted(sequences_of(messages))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(origins, "BLOCK", block)
        batch = Batch(messages)
        stored = list(batch.message_runs("s", batch.everything.runs()))

    assert len(stored) == len({one // block for one in there})
    for run in stored:
        held = [one for one in there if run.first_sequence <= one <= run.last_sequence]
        assert (run.message_id, held[0], held[-1]) == (f"m{held[0]}", run.first_sequence, run.last_sequence)
        assert run.first_sequence // block == run.last_sequence // block
        assert run.erased == run.last_sequence - run.first_sequence + 1 - len(held)
    assert sum(run.last_sequence - run.first_sequence + 1 - run.erased for run in stored) == len(there)
