"""The checker is shown histories made by hand: a good one, and one for each thing that must never be."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.crash.checker import check, half_seen, overlapping
from tests.crash.history import (
    LEDGERS,
    Aftermath,
    Commit,
    Diff,
    Ended,
    History,
    Print,
    Reading,
    Sight,
    Space,
    Theme,
    Turn,
    Way,
    found_out,
    ids_of,
    ledger_text,
    marks_of,
    own_words,
    printed,
)
from tests.crash.violations import Wrong

ANN = Space("acme", "ann")
IDS = ("c1", "c2", "c3")
TURNS = tuple(
    Turn(ANN, "s", id, way, "" if way is Way.COMMITTED else f"turn-{id}") for id, way in zip(IDS, Way, strict=True)
)


def sight(target: str, revision: int, **fields: Any) -> Sight:
    """What a search finds at a revision."""
    ids = IDS[:revision]
    there = {
        "ledgers": dict.fromkeys(LEDGERS, ids) if revision else {},
        "marks": frozenset(marks_of(target) if target in ids else ()),
    }
    return Sight(**{
        "space": ANN, "reader": "r", "target": target, "started": 0.0, "ended": 1.0, "minimum": 0,
        "revision": revision, **there, **fields,
    })  # fmt: skip


def in_fold(id: str) -> tuple[str, float, frozenset[str]]:
    """A turn that was folded into a bucket once, beside the others."""
    return id, 0.5, frozenset(IDS)


def good() -> History:
    """Three commits, the second a big one, one after the other in real time; seen at every revision. Each is a turn
    that got its fingerprint in another way, and was folded into the session's bucket."""
    commits = [Commit(ANN, id, id == "c2", f"task-{id}", 10.0 * n, 10.0 * n + 5) for n, id in enumerate(IDS)]
    tasks, diffs, files = {}, {}, dict.fromkeys(LEDGERS, "")
    for number, commit in enumerate(commits, 1):
        adds = len(commit.made) + (len(LEDGERS) if number == 1 else 0)
        tasks[commit.task_id] = Ended("COMPLETED", "APPLIED", number, adds, 0 if number == 1 else len(LEDGERS))
        changes = {name: ("", "made") for name in commit.made}
        for name in LEDGERS:
            changes[name] = (files[name], ledger_text(IDS[:number]))
            files[name] = changes[name][1]
        diffs[commit.task_id] = Diff(number, changes)
    aftermath = Aftermath(
        ledgers=dict.fromkeys(LEDGERS, IDS),
        marks=tuple(name for commit in commits for name in commit.made),
        versions=dict.fromkeys(LEDGERS, ((1, 1), (2, 2), (3, 3))),
        tasks=tasks,
        diffs=diffs,
        messages={"s": ("m1", "m2", "m3")},
        contents={"m1": "1", "m2": "2", "m3": "3"},
        revision=3,
        indexed_revision=3,
        open_tasks=0,
        pending=0,
        turn_tasks=dict.fromkeys(("turn-c1", "turn-c2", "fold"), "COMPLETED"),
        prints={"s": {turn.id: printed(turn.id, turn.way) for turn in TURNS}},
        artifacts={"s": IDS},
        themes={"s": (Theme(tuple(map(in_fold, IDS)), agrees=True),)},
    )
    return History(
        commits=commits,
        turns=list(TURNS),
        reconciled={ANN: {"fold"}},
        added={(ANN, "s"): ["m1", "m2", "m3"]},
        contents={"m1": "1", "m2": "2", "m3": "3"},
        sights=[sight(id, revision, minimum=revision) for revision in range(4) for id in IDS],
        readings=[Reading(ANN, "r", "ledger_a", revision, IDS[:revision]) for revision in (1, 2, 3)],
        aftermath={ANN: aftermath},
    )


def after(**fields: Any) -> Callable[[History], None]:
    """The same history with another aftermath."""

    def change(history: History) -> None:
        history.aftermath[ANN] = replace(history.aftermath[ANN], **fields)

    return change


def in_one_ledger(*ids: str) -> Callable[[History], None]:
    return after(ledgers={**dict.fromkeys(LEDGERS, IDS), "ledger_b": ids})


def in_all_ledgers(*ids: str) -> Callable[[History], None]:
    """What a store that lost or turned something would show everywhere alike."""

    def change(history: History) -> None:
        after(ledgers=dict.fromkeys(LEDGERS, ids))(history)
        history.sights = []
        history.readings = []

    return change


def task(**fields: Any) -> Callable[[History], None]:
    def change(history: History) -> None:
        tasks = history.aftermath[ANN].tasks
        after(tasks={**tasks, "task-c2": replace(tasks["task-c2"], **fields)})(history)

    return change


def swapped_revisions(history: History) -> None:
    tasks = history.aftermath[ANN].tasks
    first, second = tasks["task-c1"], tasks["task-c2"]
    turned = {"task-c1": replace(first, revision=2), "task-c2": replace(second, revision=1)}
    after(tasks={**tasks, **turned})(history)


def messages(*ids: str) -> Callable[[History], None]:
    return after(messages={"s": ids})


def diffs(change: Callable[[Mapping[str, Diff]], dict[str, Diff]]) -> Callable[[History], None]:
    return lambda history: after(diffs=change(history.aftermath[ANN].diffs))(history)


def seen(*sights: Sight) -> Callable[[History], None]:
    def change(history: History) -> None:
        history.sights = list(sights)

    return change


def read(*readings: tuple[int, tuple[str, ...]]) -> Callable[[History], None]:
    def change(history: History) -> None:
        history.readings = [Reading(ANN, "r", "ledger_a", revision, ids) for revision, ids in readings]

    return change


def fault(history: History) -> None:
    history.faults.append("INTERNAL")


def fingerprints(**changed: Print) -> Callable[[History], None]:
    return lambda history: after(prints={"s": {**history.aftermath[ANN].prints["s"], **changed}})(history)


def in_bucket(*facts: tuple[str, float, frozenset[str]], agrees: bool = True) -> Callable[[History], None]:
    return after(themes={"s": (Theme(facts, agrees),)})


def nobody_looked(history: History) -> None:
    history.aftermath.clear()


MARKS = good().aftermath[ANN].marks
TASKS = good().aftermath[ANN].tasks
TWO = dict.fromkeys(LEDGERS, IDS[:2])


def test_a_good_history_has_nothing_wrong() -> None:
    assert check(good()) == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        pytest.param(in_one_ledger("c1", "c3"), Wrong.LOST, id="an-append-lost-in-one-ledger"),
        pytest.param(in_all_ledgers("c1", "c3"), Wrong.LOST, id="an-append-lost-in-all"),
        pytest.param(in_one_ledger("c1", "c2", "c2", "c3"), Wrong.DOUBLED, id="an-append-twice"),
        pytest.param(in_all_ledgers("c1", "c2", "c3", "c2"), Wrong.DOUBLED, id="an-append-twice-in-all"),
        pytest.param(in_one_ledger("c1", "c3", "c2"), Wrong.DISORDER, id="ledgers-of-different-orders"),
        pytest.param(in_all_ledgers("c1", "c3", "c2"), Wrong.DISORDER, id="another-order-than-the-tasks"),
        pytest.param(in_one_ledger("c1", "c2", "c3", "c9"), Wrong.FOREIGN, id="an-append-of-nobody"),
        pytest.param(after(marks=MARKS[1:]), Wrong.LOST, id="a-mark-lost"),
        pytest.param(after(marks=(*MARKS, MARKS[0])), Wrong.DOUBLED, id="a-mark-twice"),
        pytest.param(after(marks=(*MARKS, "c1-one~5f2a")), Wrong.FOREIGN, id="a-mark-beside-its-like"),
        pytest.param(swapped_revisions, Wrong.DISORDER, id="tasks-of-another-order"),
        pytest.param(task(state="FAILED"), Wrong.NOT_COMPLETED, id="a-task-failed"),
        pytest.param(task(state="PENDING"), Wrong.NOT_COMPLETED, id="a-task-stuck"),
        pytest.param(task(outcome="PARTLY_REJECTED"), Wrong.NOT_COMPLETED, id="a-task-partly-applied"),
        pytest.param(task(adds=3), Wrong.LOST, id="a-task-that-made-less"),
        pytest.param(task(revision=3), Wrong.LOST, id="two-tasks-of-one-revision"),
        pytest.param(
            after(tasks={name: TASKS[name] for name in list(TASKS)[1:]}), Wrong.NOT_COMPLETED, id="a-task-gone"
        ),
        pytest.param(
            after(tasks={**TASKS, "x": Ended("COMPLETED", "APPLIED", 4, 2, 3)}), Wrong.DOUBLED, id="a-task-of-nobody"
        ),
        pytest.param(after(revision=4, indexed_revision=4), Wrong.DOUBLED, id="a-revision-too-many"),
        pytest.param(after(revision=2, indexed_revision=2), Wrong.LOST, id="a-revision-too-few"),
        pytest.param(
            after(versions={**dict.fromkeys(LEDGERS, ((1, 1), (2, 2), (3, 3))), "ledger_c": ((1, 1), (2, 3))}),
            Wrong.LOST,
            id="a-version-left-out",
        ),
        pytest.param(
            diffs(lambda all: {name: diff for name, diff in all.items() if name != "task-c2"}),
            Wrong.LOST,
            id="a-diff-left-out",
        ),
        pytest.param(
            diffs(lambda all: {**all, "task-c3": Diff(3, {"ledger_a": ("c1 alone", "c3")})}),
            Wrong.LOST,
            id="a-diff-on-another-base",
        ),
        pytest.param(after(open_tasks=1), Wrong.LEFT_OVER, id="a-task-left-open"),
        pytest.param(after(pending=1), Wrong.LEFT_OVER, id="a-passage-not-searchable"),
        pytest.param(after(indexed_revision=2), Wrong.LEFT_OVER, id="a-watermark-behind"),
        pytest.param(messages("m1", "m3"), Wrong.LOST, id="a-message-lost"),
        pytest.param(messages("m1", "m2", "m2", "m3"), Wrong.DOUBLED, id="a-message-twice"),
        pytest.param(messages("m1", "m3", "m2"), Wrong.DISORDER, id="messages-out-of-order"),
        pytest.param(messages("m1", "m2", "m3", "m4"), Wrong.FOREIGN, id="a-message-of-nobody"),
        pytest.param(after(contents={"m1": "1", "m2": "3", "m3": "3"}), Wrong.DAMAGED, id="a-message-changed"),
        pytest.param(after(contents={"m1": "1", "m2": "2"}), Wrong.LOST, id="a-message-without-content"),
        pytest.param(
            seen(sight("c3", 3, marks=frozenset({*marks_of("c3"), *marks_of("d1")}))), Wrong.LEAKED, id="a-foreign-mark"
        ),
        pytest.param(
            seen(sight("c3", 3, foreign=frozenset({"viking://user/bob/x.md"}))), Wrong.LEAKED, id="a-foreign-memory"
        ),
        pytest.param(seen(sight("c3", 3, marks=frozenset())), Wrong.HALF_SEEN, id="ledgers-without-marks"),
        pytest.param(seen(sight("c3", 3, marks=frozenset({"c3-one"}))), Wrong.HALF_SEEN, id="one-mark-of-two"),
        pytest.param(seen(sight("c3", 3, ledgers=TWO)), Wrong.HALF_SEEN, id="marks-without-appends"),
        pytest.param(
            seen(sight("c1", 3, ledgers={**TWO, "ledger_c": IDS})), Wrong.HALF_SEEN, id="ledgers-of-two-revisions"
        ),
        pytest.param(
            seen(sight("c0", 3, ledgers=dict.fromkeys(LEDGERS[:2], IDS))), Wrong.HALF_SEEN, id="a-ledger-not-found"
        ),
        pytest.param(seen(sight("c3", 2, ledgers={})), Wrong.HALF_SEEN, id="no-ledger-found-where-there-are-some"),
        pytest.param(seen(sight("c1", 3, ledgers=TWO)), Wrong.HALF_SEEN, id="ledgers-older-than-the-answer-says"),
        pytest.param(seen(sight("c3", 2, minimum=3)), Wrong.WENT_BACK, id="an-answer-older-than-asked-for"),
        pytest.param(
            seen(sight("c1", 3, minimum=1), sight("c1", 2, minimum=1)), Wrong.WENT_BACK, id="a-searcher-goes-back"
        ),
        pytest.param(read((3, IDS), (2, IDS[:2])), Wrong.WENT_BACK, id="a-reader-goes-back"),
        pytest.param(read((3, IDS[:2])), Wrong.HALF_SEEN, id="a-reading-of-another-revision"),
        pytest.param(
            after(prints={"s": {id: printed(id, way) for id, way in zip(IDS[:2], Way, strict=False)}}),
            Wrong.LOST,
            id="a-fingerprint-lost",
        ),
        pytest.param(fingerprints(c1=found_out("c1")), Wrong.LOST, id="a-callers-own-words-overwritten"),
        pytest.param(fingerprints(c1=own_words("c1")), Wrong.HALF_SEEN, id="what-was-missing-not-filled-in"),
        pytest.param(fingerprints(c2=Print("", (), ())), Wrong.HALF_SEEN, id="a-fingerprint-half-there"),
        pytest.param(fingerprints(c3=found_out("c2")), Wrong.HALF_SEEN, id="the-fingerprint-of-another-turn"),
        pytest.param(fingerprints(c9=found_out("c9")), Wrong.FOREIGN, id="a-fingerprint-of-nobody"),
        pytest.param(after(artifacts={"s": IDS[1:]}), Wrong.LOST, id="a-fingerprint-without-its-tag"),
        pytest.param(after(artifacts={"s": (*IDS, "c2")}), Wrong.DOUBLED, id="a-fingerprint-tagged-twice"),
        pytest.param(
            after(turn_tasks={"turn-c1": "FAILED", "turn-c2": "COMPLETED", "fold": "COMPLETED"}),
            Wrong.NOT_COMPLETED,
            id="a-fingerprint-task-failed",
        ),
        pytest.param(
            after(turn_tasks=dict.fromkeys(("turn-c1", "turn-c2"), "COMPLETED")),
            Wrong.NOT_COMPLETED,
            id="a-bucket-task-gone",
        ),
        pytest.param(
            after(turn_tasks=dict.fromkeys(("turn-c1", "turn-c2", "fold", "x"), "COMPLETED")),
            Wrong.DOUBLED,
            id="a-task-about-turns-of-nobody",
        ),
        pytest.param(in_bucket(in_fold("c1"), in_fold("c3")), Wrong.LOST, id="a-turn-in-no-bucket"),
        pytest.param(
            in_bucket(in_fold("c1"), in_fold("c2"), ("c3", 0.6, frozenset(IDS))),
            Wrong.DOUBLED,
            id="a-turn-weighed-twice",
        ),
        pytest.param(
            in_bucket(*map(in_fold, (*IDS, "c3"))), Wrong.DOUBLED, id="a-turn-folded-in-twice"
        ),
        pytest.param(
            in_bucket(in_fold("c1"), in_fold("c2"), ("c3", 0.5, frozenset({"c1"}))),
            Wrong.LOST,
            id="a-turn-folded-in-when-it-was-not-looked-at",
        ),
        pytest.param(
            in_bucket(*map(in_fold, IDS), agrees=False), Wrong.HALF_SEEN, id="a-row-of-another-blob"
        ),
        pytest.param(fault, Wrong.FAULT, id="an-answer-that-no-crash-excuses"),
        pytest.param(nobody_looked, Wrong.LOST, id="nobody-looked"),
    ],
)  # fmt: skip
def test_what_must_never_be_is_found(change: Callable[[History], None], wrong: Wrong) -> None:
    history = copy.deepcopy(good())
    change(history)

    found = check(history)

    assert wrong in {violation.wrong for violation in found}, found


def test_what_was_answered_before_another_was_asked_for_stands_before_it() -> None:
    """The checker also notices this if ledgers and tasks agree on the order."""
    history = good()
    turned = (IDS[1], IDS[0], IDS[2])
    in_all_ledgers(*turned)(history)
    swapped_revisions(history)
    asked_later = "which was asked for later"
    assert asked_later in " ".join(violation.detail for violation in check(history))

    history.commits[1] = replace(history.commits[1], invoked=1.0)
    assert asked_later not in " ".join(violation.detail for violation in check(history))


def test_answers_that_contradict_themselves_are_told_without_the_aftermath() -> None:
    assert not half_seen(sight("c3", 3))
    assert not half_seen(sight("c3", 2))
    assert half_seen(sight("c3", 2, marks=frozenset(marks_of("c3"))))
    assert half_seen(sight("c2", 2, ledgers={}))


def test_what_a_full_answer_lacks_is_no_contradiction() -> None:
    assert not half_seen(sight("c3", 3, marks=frozenset({"c3-one"}), is_full=True))
    assert not half_seen(sight("c2", 2, ledgers={}, is_full=True))
    assert half_seen(sight("c3", 3, ledgers={"ledger_a": IDS[:2]}, is_full=True))
    assert half_seen(sight("c1", 3, ledgers={"ledger_a": IDS[:2], "ledger_b": IDS}, is_full=True))


def test_a_search_overlaps_a_commit_that_is_not_in_sight_yet() -> None:
    assert overlapping(History(sights=[sight("c3", 2, latest=3), sight("c2", 2, latest=2)])) == 1


def test_ledgers_are_read_as_they_are_written() -> None:
    assert ids_of(ledger_text(IDS)) == IDS
    assert ids_of(ledger_text(())) == ()
    with pytest.raises(ValueError, match="no ledger"):
        ids_of("c1\nc2")
