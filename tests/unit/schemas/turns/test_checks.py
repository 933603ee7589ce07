"""What is refused, what is cut into form, and that secrets do not stay."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep.buf.validate import validate_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.turns import checks, folding, selection
from runekeep_schemas.turns.buckets import MAX_SLICE_SIGNALS, MAX_SUPPORT
from runekeep_schemas.turns.checks import (
    bounded,
    bounded_signals,
    bounded_summary,
    problems,
    value_problem,
    withheld,
    withheld_summary,
)
from runekeep_schemas.turns.fingerprint import (
    LISTS,
    MAX_BYTES,
    MAX_SIGNALS,
    MAX_VALUE_BYTES,
    SCOPES,
    SEVERITIES,
    TARGETS,
    Fingerprint,
    Query,
    Signal,
)
from runekeep_schemas.turns.summary import ITEM_LENGTH, MAX_ITEMS, NOTES_LENGTH, TEXT_LENGTH, Summary
from tests.unit.schemas.turns.strategies import fingerprints, summaries, texts, values

GOOD = Signal("budget.cap", 500, "high")
NONE_OF_JSON = (float("nan"), float("inf"), -float("inf"))


@given(values)
def test_values_in_form(value: Any) -> None:
    assert value_problem(value) is None


@pytest.mark.parametrize(
    "value",
    [
        *NONE_OF_JSON,
        [],
        [1],
        {},
        {"other": 1},
        {"min": 1, "options": []},
        {"rule": "x", "exclude": []},
        {"min": None},
        {"max": True},
        {"min": [1]},
        {"max": float("nan")},
        {"options": "x"},
        {"options": {}},
        {"options": [[1]]},
        {"exclude": [{"min": 1}]},
        {"exclude": [float("inf")]},
        {"rule": 1},
        {"rule": " "},
        object(),
    ],
)
def test_values_out_of_form(value: Any) -> None:
    assert value_problem(value) is not None


def test_values_are_bounded_in_bytes() -> None:
    fits = "é" * ((MAX_VALUE_BYTES - 2) // 2)
    assert value_problem(fits) is None
    assert value_problem(fits + "é") == ("has 1026 bytes as JSON", "Keep it to 1024 bytes")
    assert value_problem({"options": [fits]}) is not None


def test_everything_that_is_wrong_is_named() -> None:
    said = Fingerprint(
        "t1",
        topics=("travel", " "),
        assertions=(Signal("a", 1, "must"), Signal("b", [1], "high")),
        exceptions=(Signal("\n", 1, "avoid"),),
        facts=(Signal("c", 1, "low", "galaxy"),),
        ctx_retrieval_queries=(Query("", "\t"),),
    )
    assert problems(said) == [
        ("topics[1]", "is blank", "Leave it out"),
        ("assertions[1].severity", "HIGH does not fit here", "Take one of PREFER, MUST, ALLOW"),
        (
            "assertions[1].value",
            "is neither a scalar nor an object",
            "Give a scalar, or an object {min, max}, {options: []}, {exclude: []} or {rule: text}",
        ),
        ("exceptions[0].key", "is blank", "Name what the signal is about"),
        ("facts[0].scope", "galaxy is not known", "Take one of conversation, objective, artifact, thread"),
        ("ctx_retrieval_queries[0].query", "is blank", "Leave it out"),
    ]


@pytest.mark.parametrize("name", LISTS)
def test_severities_belong_to_their_lists(name: str) -> None:
    for severity in {one for some in SEVERITIES.values() for one in some}:
        lists: dict[str, Any] = {name: (replace(GOOD, severity=severity),)}
        found = problems(Fingerprint("t1", **lists))
        assert (not found) is (severity in SEVERITIES[name])


def test_the_whole_is_bounded_in_bytes() -> None:
    def of(length: int) -> Fingerprint:
        filling = tuple(Signal("k", "x" * 1000, "high") for _ in range(15))
        return Fingerprint("t1", facts=filling, objective="y" * length)

    room = MAX_BYTES - len(of(0).to_text())
    assert problems(of(room)) == []
    assert problems(of(room + 1)) == [("", "has 16385 bytes as JSON", "Keep it to 16384 bytes")]


def test_the_size_is_not_asked_of_what_has_no_json() -> None:
    (problem,) = problems(Fingerprint("t1", facts=(Signal("k", object(), "high"),)))
    assert problem[0] == "facts[0].value"


@given(fingerprints)
def test_what_is_in_form_is_accepted(fingerprint: Fingerprint) -> None:
    assert problems(fingerprint) == []


wild_signals = st.builds(
    Signal,
    key=texts | st.text(min_size=60, max_size=70),
    value=values | st.sampled_from([*NONE_OF_JSON, [1], {}, {"x": 1}, "v" * 2000]),
    severity=st.sampled_from(["", "must", "high", "HIGH", "avoid", "mention"]),
    scope=st.sampled_from(["", "thread", "galaxy"]),
    applies_to=texts | st.text(min_size=60, max_size=70),
)
wild = st.builds(
    Fingerprint,
    turn_id=st.just("t1"),
    objective=texts | st.text(min_size=295, max_size=305),
    topics=st.lists(texts | st.text(min_size=60, max_size=70), max_size=12).map(tuple),
    **{name: st.lists(wild_signals, max_size=20).map(tuple) for name in LISTS},
    ctx_retrieval_queries=st.lists(
        st.builds(Query, where=st.sampled_from(["", "user", "moon"]), query=texts, reason=texts), max_size=4
    ).map(tuple),
    conversation_title=texts | st.text(min_size=195, max_size=205),
)


@given(wild)
def test_what_is_extracted_comes_into_form(found: Fingerprint) -> None:
    kept, dropped = bounded(found)
    assert problems(kept) == []
    assert len(kept.objective) <= 300
    assert len(kept.conversation_title) <= 200
    assert len(kept.topics) <= 8
    assert all(0 < len(topic) <= 64 for topic in kept.topics)
    assert len(kept.ctx_retrieval_queries) <= 2
    assert all(one.where in ("", *TARGETS) and 0 < len(one.query) <= 256 for one in kept.ctx_retrieval_queries)
    for name in LISTS:
        signals = getattr(kept, name)
        assert len(signals) <= MAX_SIGNALS
        assert all(0 < len(one.key) <= 64 and len(one.applies_to) <= 64 for one in signals)
        assert all(one.severity in SEVERITIES[name] and one.scope in ("", *SCOPES) for one in signals)
    kept_items = sum(len(getattr(kept, name)) for name in LISTS)
    assert kept_items + dropped >= sum(len(getattr(found, name)) for name in LISTS)
    assert bounded(kept) == (kept, 0)


def test_what_is_cut_and_what_is_counted() -> None:
    found = Fingerprint(
        "t1",
        "o" * 301,
        tuple(f"topic {number}" for number in range(9)),
        assertions=(
            Signal(" a\nb ", 2.0, "loudly", "galaxy", "l" * 65),
            Signal("", 1, "must"),
            Signal("c", [1], "must"),
        ),
        facts=tuple(Signal(f"k{number}", number, "low") for number in range(17)),
        ctx_retrieval_queries=(Query("moon", " x\ny "), Query("user", ""), Query("user", "b"), Query("user", "c")),
    )
    kept, dropped = bounded(found)
    assert kept.objective == "o" * 299 + "…"
    assert kept.topics == tuple(f"topic {number}" for number in range(8))
    assert kept.assertions == (Signal("a b", 2, "prefer", "", "l" * 63 + "…"),)
    assert repr(kept.assertions[0].value) == "2"
    assert [one.key for one in kept.facts] == [f"k{number}" for number in range(16)]
    assert kept.ctx_retrieval_queries == (Query("", "x y"), Query("user", "b"))
    assert dropped == 1 + 2 + 1 + 2


def test_too_much_loses_the_last_of_the_largest_list() -> None:
    facts = tuple(Signal(f"k{number}", "x" * 1000, "low") for number in range(16))
    rule = Signal("rule", {"rule": "y" * 900}, "must")
    kept, dropped = bounded(Fingerprint("t1", assertions=(rule,), facts=facts))
    assert dropped == 2
    assert kept.assertions == (rule,)
    assert kept.facts == facts[:14]


def test_signals_of_one_list() -> None:
    wrong = Signal("k" * 65, 1, "must")
    assert bounded_signals("facts", [wrong, GOOD, GOOD], 1) == ((GOOD,), 2)


@given(summaries)
def test_a_summary_that_is_extracted_comes_into_form(summary: Summary) -> None:
    long = replace(summary, notes=summary.notes + "n" * 1001, done=(*summary.done, *map(str, range(17)), "d" * 301))
    kept, dropped = bounded_summary(long)
    assert len(kept.notes) <= NOTES_LENGTH
    assert all(len(getattr(kept, name)) <= TEXT_LENGTH for name in ("user_inquiry", "assistant_answer"))
    assert len(kept.done) == MAX_ITEMS
    assert all(0 < len(item) <= ITEM_LENGTH for item in (*kept.done, *kept.risks))
    assert dropped >= 2
    assert bounded_summary(kept) == (kept, 0)


SECRET = "hunter2!x"
TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def test_secrets_leave_every_text_of_a_fingerprint() -> None:
    signal = Signal(f"use {TOKEN}", {"options": [TOKEN, 1]}, "must", "", f"to {TOKEN}")
    said = Fingerprint(
        "t1",
        f"Log in: password is {SECRET}",
        (TOKEN, "b"),
        *((signal,) for _ in LISTS),
        (Query("user", f"password: {SECRET}", f"because {TOKEN}"),),
        conversation_title=f"About {TOKEN}",
    )
    clean, taken = withheld(said)
    assert taken == 1 + 1 + 3 * len(LISTS) + 2 + 1
    assert TOKEN not in clean.to_text()
    assert SECRET not in clean.to_text()
    assert clean.facts[0].value == {"options": ["[withheld: token]", 1]}
    assert withheld(clean) == (clean, 0)


@pytest.mark.parametrize(
    ("key", "value", "clean"),
    [
        ("wifi.password", "hunter2", "[withheld: password]"),
        ("api_key", "abc123def", "[withheld: password]"),
        ("pin", 4711.0, "[withheld: password]"),
        ("card", 4111111111111111, "[withheld: card number]"),
        ("db", {"rule": f"password: {SECRET}"}, {"rule": "password: [withheld: password]"}),
        ("login.password", {"options": ["hunter2", "hunter33"]}, {"options": ["[withheld: password]"] * 2}),
    ],
)
def test_a_value_is_a_secret_where_its_key_says_so(key: str, value: Any, clean: Any) -> None:
    said, taken = withheld(Fingerprint("t1", facts=(Signal(key, value, "high"),)))
    assert said.facts == (Signal(key, clean, "high"),)
    assert taken >= 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("budget.cap", 500),
        ("passengers", 4711),
        ("password.rotation", True),
        ("key.colour", "dark blue"),
        ("trip", {"min": 2, "max": 7.5}),
        ("language", None),
        ("format", "table"),
    ],
)
def test_other_values_stay_as_they_are(key: str, value: Any) -> None:
    said = Fingerprint("t1", facts=(Signal(key, value, "high"),))
    assert withheld(said) == (said, 0)
    assert repr(withheld(said)[0].facts[0].value) == repr(value)


@pytest.mark.parametrize("before", range(250, 300, 7))
def test_no_half_of_a_secret_stays_behind_a_cut(before: int) -> None:
    """The extractor cuts what it sends to the lengths of the contract, and the server tells secrets by their form."""
    text = f"{'x ' * (before // 2)}use {TOKEN} to log in"
    objective = withheld(bounded(Fingerprint("t1", objective=text))[0])[0].objective
    assert TOKEN[:6] not in objective and len(objective) <= 300
    summary, _ = bounded_summary(Summary(done=(text,)))
    assert TOKEN[:6] not in withheld_summary(summary)[0].done[0]


def test_a_secret_away_from_the_cut_is_for_others_to_withhold() -> None:
    objective = bounded(Fingerprint("t1", objective=f"use {TOKEN} {'x ' * 200}"))[0].objective
    assert TOKEN in objective and objective.endswith("…") and len(objective) <= 300


@pytest.mark.parametrize("text", [f"password:\n{SECRET}", f"the password is\n\n{SECRET} today"])
def test_a_name_and_its_secret_on_two_lines(text: str) -> None:
    """They are shown on one."""
    clean, taken = withheld(Fingerprint("t1", objective=text, facts=(Signal("note", text, "high"),)))
    assert taken == 2
    assert SECRET not in clean.to_text()


def test_lines_without_a_secret_stay_as_they_are() -> None:
    said = Fingerprint("t1", objective="Rotate the password:\nopen  the settings")
    assert withheld(said) == (said, 0)


def test_a_value_of_any_depth_breaks_nothing() -> None:
    value: Any = SECRET
    for _ in range(5000):
        value = [value]
    said = Fingerprint("t1", facts=(Signal("k", value, "high"),))
    assert bounded(withheld(said)[0])[0].facts == ()


def test_what_a_note_makes_longer_is_cut() -> None:
    text = f"pin: 4711 {'x' * 290}"
    clean, taken = withheld(Fingerprint("t1", objective=text))
    assert taken == 1
    assert len(clean.objective) == 300
    assert clean.objective.startswith("pin: [withheld: password] xxx")


def test_secrets_leave_every_text_of_a_summary() -> None:
    said = Summary(TOKEN, TOKEN, TOKEN, TOKEN, (TOKEN,), (TOKEN,), (TOKEN,), (TOKEN, "b"), TOKEN)
    clean, taken = withheld_summary(said)
    assert taken == 9
    assert TOKEN not in clean.to_text()
    assert clean.risks == ("[withheld: token]", "b")


@given(summaries)
def test_a_summary_without_secrets_stays_as_it_is(summary: Summary) -> None:
    if not withheld_summary(summary)[1]:
        assert withheld_summary(summary)[0] == summary


def test_bounds_are_those_of_the_contract() -> None:
    def rules(message: Any, field: str) -> Any:
        return message.DESCRIPTOR.fields_by_name[field].GetOptions().Extensions[validate_pb2.field]

    fingerprint, summary = pb.TurnFingerprint, pb.TurnSummary
    assert rules(fingerprint, "objective").string.max_len == 300
    assert rules(fingerprint, "topics").repeated.items.string.max_len == checks.TOPIC_LENGTH
    assert rules(fingerprint, "conversation_title").string.max_len == checks.TITLE_LENGTH
    assert {rules(fingerprint, name).repeated.max_items for name in LISTS} == {MAX_SIGNALS}
    assert rules(pb.TurnSignal, "key").string.max_len == checks.KEY_LENGTH
    assert rules(pb.TurnSignal, "applies_to").string.max_len == checks.LABEL_LENGTH
    assert rules(pb.ContextQuery, "query").string.max_len == checks.QUERY_LENGTH
    assert rules(pb.MemoryBucket, "name").string.max_len == folding.NAME_LENGTH
    assert rules(pb.MemoryBucket, "short_desc").string.max_len == folding.DESCRIPTION_LENGTH
    assert rules(pb.MemoryBucket, "topic_centroid").repeated.max_items == folding.MAX_TOPICS
    assert rules(pb.TimelineSlice, "facts").repeated.max_items == MAX_SLICE_SIGNALS
    assert rules(pb.BucketSignal, "support_turn_ids").repeated.max_items == MAX_SUPPORT
    assert rules(pb.SetTurnSelectionRequest, "offer").string.max_len == selection.MAX_TOKEN
    assert rules(summary, "user_inquiry").string.max_len == TEXT_LENGTH
    assert rules(summary, "notes").string.max_len == NOTES_LENGTH
    assert rules(summary, "done").repeated.max_items == MAX_ITEMS
    assert rules(summary, "done").repeated.items.string.max_len == ITEM_LENGTH
    severities = {
        name.removeprefix("SIGNAL_SEVERITY_").lower() for name in pb.SignalSeverity.DESCRIPTOR.values_by_name
    } - {"unspecified"}
    assert severities == {one for some in SEVERITIES.values() for one in some}
    assert json.loads(Fingerprint("t").to_text())["version"] == "v1"
