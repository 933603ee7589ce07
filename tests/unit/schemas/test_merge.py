from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.documents.merge import (
    KEPT_WITH_SUMMARY,
    Add,
    FieldChange,
    MergeError,
    Patch,
    Set,
    coerce_fields,
    create,
    kept,
    merge_write,
    replace_all,
    split_words,
    still_holds,
    update,
)
from runekeep_schemas.documents.patch import SearchReplaceBlock
from runekeep_schemas.memory_types.coerce import INT64_MAX, FieldError
from runekeep_schemas.memory_types.model import Field, FieldType, MemoryType, MergeOp
from runekeep_schemas.type_files.registry import Registry

REGISTRY = Registry.load()
PROFILE, TOOLS, EVENTS = REGISTRY["profile"], REGISTRY["tools"], REGISTRY["events"]
PREFERENCES, EXPERIENCES, ENTITIES = REGISTRY["preferences"], REGISTRY["experiences"], REGISTRY["entities"]
GUIDE = "## Guidelines\nBe brief.\n\n### Good Cases\nx\n\n### Bad Cases\ny"
LIFE = "# User profile\n\n## Work\nAnna is a baker in Leeds.\n\n## Home\nShe has two cats and a garden."

SENSOR = MemoryType(
    name="sensor",
    description="A custom type with a field of every kind.",
    directory="viking://user/{user_space}/memories/sensor",
    filename_template="{place}_{name}.md",
    content_template="{name} {heat} {on}",
    fields=(
        Field("name", merge_op=MergeOp.IMMUTABLE),
        Field("place", merge_op=MergeOp.IMMUTABLE, optional=True),
        Field("maker", merge_op=MergeOp.IMMUTABLE),
        Field("heat", FieldType.FLOAT32, merge_op=MergeOp.SUM),
        Field("on", FieldType.BOOL, merge_op=MergeOp.REPLACE, initial=True),
        Field("level", FieldType.INT64),
    ),
)


def patch(search: str, replace: str, line: int | None = None) -> Patch:
    return Patch((SearchReplaceBlock(search, replace, line),))


def tool(**fields: Any) -> dict[str, Any]:
    return create(TOOLS, {"tool_name": "web_search", **fields})


def test_coerce_fields() -> None:
    raw = {"tool_name": " web_search ", "total_calls": "3", "best_for": None, "abstract": "a\nb"}
    assert coerce_fields(TOOLS, raw) == {"tool_name": "web_search", "total_calls": 3, "abstract": "a b"}


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"tool_name": "x", "colour": "red"}, "colour"),
        ({"tool_name": "x", "success_rate": "90%"}, "success_rate"),
        ({"tool_name": "x", "total_calls": 1.5}, "total_calls"),
        ({"total_calls": 1}, "tool_name"),
        ({"tool_name": None}, "tool_name"),
        ({"tool_name": " \n"}, "tool_name"),
    ],
)
def test_fields_that_do_not_belong_are_refused(raw: dict[str, object], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        coerce_fields(TOOLS, raw)
    assert caught.value.field == field


def test_create_fills_in_what_was_not_given() -> None:
    memory = tool(total_calls=2)
    assert memory["total_calls"] == 2
    assert memory["fail_count"] == 0 and memory["best_for"] == ""
    assert set(memory) == {field.name for field in TOOLS.fields}
    assert create(EVENTS, {"event_name": "Moved"})["event_time"] == ""
    assert create(SENSOR, {"name": "n"})["on"] is True
    assert create(PREFERENCES, {"topic": "Tea", "content": "c", "overview": "o"})["overview"] == "o"


def test_create_gives_initial_values() -> None:
    assert create(PROFILE, {}) == {"content": "# User profile"}
    assert create(PROFILE, {"content": ""}) == {"content": "# User profile"}
    assert create(PROFILE, {"content": LIFE}) == {"content": LIFE}


def test_update_by_patch_value_and_sum() -> None:
    memory = tool(total_calls=1, best_for="Docs and tutorials")
    changes: dict[str, FieldChange] = {
        "best_for": patch("tutorials", "papers"),
        "recommendation": Set("Be specific"),
        "total_calls": Add(2),
        "total_tokens": Set("40"),
        "common_failures": patch("", "Times out"),
    }
    after = update(TOOLS, memory, changes)
    assert after["best_for"] == "Docs and papers"
    assert after["recommendation"] == "Be specific"
    assert (after["total_calls"], after["total_tokens"]) == (3, 40)
    assert after["common_failures"] == "Times out"
    assert memory["total_calls"] == 1


@pytest.mark.parametrize(
    ("type", "fields", "changes"),
    [
        (TOOLS, {"tool_name": "x"}, {"tool_name": Set("y")}),
        (TOOLS, {"tool_name": "x"}, {"tool_name": patch("x", "y")}),
        (TOOLS, {"tool_name": "x"}, {"best_for": Add(1)}),
        (TOOLS, {"tool_name": "x"}, {"total_calls": patch("0", "9")}),
        (TOOLS, {"tool_name": "x"}, {"best_for": patch("absent", "y")}),
        (TOOLS, {"tool_name": "x"}, {"guidelines": Set("## Guidelines\nonly")}),
        (EXPERIENCES, {"experience_name": "x", "content": "a"}, {"content": patch("a", "b")}),
        (SENSOR, {"name": "x"}, {"place": Set("attic")}),
        (SENSOR, {"name": "x", "maker": "A"}, {"maker": Set("B")}),
    ],
)
def test_changes_a_field_does_not_take(
    type: MemoryType, fields: dict[str, object], changes: dict[str, FieldChange]
) -> None:
    with pytest.raises(MergeError) as caught:
        update(type, create(type, fields), changes)
    assert caught.value.field == next(iter(changes))


@pytest.mark.parametrize("name", ["success_rate", "colour"])
def test_derived_and_unknown_fields_are_never_written(name: str) -> None:
    for change in (Set(1), Add(1), patch("a", "b")):
        with pytest.raises(FieldError, match=name):
            update(TOOLS, tool(), {name: change})


def test_a_failed_block_is_named() -> None:
    blocks = Patch((SearchReplaceBlock("Docs", "d"), SearchReplaceBlock("absent", "d")))
    with pytest.raises(MergeError) as caught:
        update(TOOLS, tool(best_for="Docs"), {"best_for": blocks})
    assert caught.value.block_index == 1


def test_an_empty_value_wipes_nothing() -> None:
    memory = create(EXPERIENCES, {"experience_name": "x", "content": "a", "supersedes": "b", "abstract": "c"})
    empty: dict[str, FieldChange] = {
        "content": Set(" \n"),
        "supersedes": Set(None),
        "abstract": Set(""),
        "overview": Set(""),
    }
    assert update(EXPERIENCES, memory, empty) == memory
    assert update(SENSOR, create(SENSOR, {"name": "n"}), {"on": Set(False)})["on"] is False


def test_immutable_fields_take_their_first_value() -> None:
    memory = create(SENSOR, {"name": "x"})
    assert update(SENSOR, memory, {"maker": Set("A"), "name": Set(" x")})["maker"] == "A"
    assert merge_write(SENSOR, memory, {"name": "x", "maker": "A"})["maker"] == "A"


def test_views_may_be_set_on_any_type() -> None:
    memory = update(PROFILE, create(PROFILE, {}), {"abstract": Set("A\nbaker"), "overview": Set("o\np")})
    assert (memory["abstract"], memory["overview"]) == ("A baker", "o\np")
    assert update(PROFILE, memory, {"overview": patch("p", "q")})["overview"] == "o\nq"
    with pytest.raises(MergeError):
        update(PROFILE, memory, {"abstract": patch("A", "B")})


def test_sums_stay_in_range() -> None:
    memory = tool(total_tokens=INT64_MAX)
    with pytest.raises(FieldError, match="64 bits"):
        update(TOOLS, memory, {"total_tokens": Add(1)})
    warm = create(SENSOR, {"name": "x", "heat": 3e38})
    with pytest.raises(FieldError, match="finite"):
        update(SENSOR, warm, {"heat": Add(3e38)})
    assert update(SENSOR, create(SENSOR, {"name": "x"}), {"heat": Add(0.5)})["heat"] == 0.5


def test_a_write_on_an_existing_memory_is_merged() -> None:
    memory = tool(total_calls=10, success_count=9, fail_count=1, best_for="Docs", guidelines=GUIDE)
    raw = {"tool_name": "web_search", "total_calls": 2, "success_count": 2, "best_for": "", "optimal_params": "n=5"}
    after = merge_write(TOOLS, memory, raw)
    assert (after["total_calls"], after["success_count"], after["fail_count"]) == (12, 11, 1)
    assert (after["best_for"], after["optimal_params"], after["guidelines"]) == ("Docs", "n=5", GUIDE)
    assert merge_write(TOOLS, memory, {"tool_name": "other name"})["tool_name"] == "web_search"


def test_a_write_never_shrinks_a_counter() -> None:
    with pytest.raises(MergeError, match="never shrinks"):
        merge_write(TOOLS, tool(total_calls=10), {"tool_name": "web_search", "total_calls": -5})


def test_a_second_event_of_one_name_overwrites_nothing() -> None:
    raw = {"event_name": "Met Bo", "event_time": "2026-01-02", "content": "At the station."}
    memory = create(EVENTS, raw)
    assert merge_write(EVENTS, memory, raw) == memory
    assert merge_write(EVENTS, memory, {"event_name": "Met Bo", "event_time": "2026-01-02"}) == memory
    with pytest.raises(MergeError, match="only added"):
        merge_write(EVENTS, memory, {**raw, "content": "At the airport, by chance."})


def test_the_profile_keeps_its_text() -> None:
    memory = create(PROFILE, {"content": LIFE})
    grown = update(PROFILE, memory, {"content": patch("Leeds.", "Leeds.\nShe plays the cello.", 4)})
    assert "cello" in str(grown["content"]) and "garden" in str(grown["content"])
    corrected = update(PROFILE, memory, {"content": patch("two cats", "three cats")})
    assert "three cats" in str(corrected["content"])
    for change in (Set("Likes tea."), patch(LIFE, "Likes tea."), Set("Likes tea and other things. " * 20)):
        with pytest.raises(MergeError, match="must stay"):
            update(PROFILE, memory, {"content": change})
    with pytest.raises(MergeError, match="must stay"):
        merge_write(PROFILE, memory, {"content": "Likes tea."})
    assert replace_all(PROFILE, {"content": "Likes tea."}) == {"content": "Likes tea."}


def test_the_profile_in_a_script_without_spaces_keeps_its_text_too() -> None:
    memory = create(PROFILE, {"content": "安娜是利兹的一名面包师。她养了两只猫。"})
    assert update(PROFILE, memory, {"content": patch("两只猫", "三只猫")})["content"] != memory["content"]
    with pytest.raises(MergeError):
        update(PROFILE, memory, {"content": Set("喜欢茶")})


TEXTS = [
    (type.name, field.name)
    for type in REGISTRY
    for field in type.fields
    if field.keep_ratio is not None and field.keep_from
]
# Each line has words of its own, so that what is left of a text can be told by its lines.
FACTS = [f"Fact{n} says that thing{n} is kept at place{n} because reason{n} was given." for n in range(10)]


def headed(lines: list[str]) -> str:
    """Lines under the headings that some fields demand; a small part of the whole."""
    return "\n".join(["## Guidelines", "### Good Cases", *lines, "### Bad Cases"])


@pytest.mark.parametrize(("name", "field"), TEXTS)
def test_a_long_text_is_not_lost_to_a_short_one(name: str, field: str) -> None:
    type = REGISTRY[name]
    key = {one: "Some name" for one in type.key_fields}
    memory = create(type, {**key, field: headed(FACTS)})
    grown = update(type, memory, {field: Set(headed(["New words about another matter.", *FACTS[:6]]))})
    assert "another matter" in str(grown[field]), "most of it stays: four lines of ten may go"
    for lost in (headed(["New words about another matter."]), headed(FACTS[:1])):
        with pytest.raises(MergeError, match="must stay") as caught:
            update(type, memory, {field: Set(lost)})
        assert caught.value.field == field
        with pytest.raises(MergeError, match="must stay"):
            merge_write(type, memory, {**key, field: lost})


@pytest.mark.parametrize(("name", "field"), TEXTS)
def test_a_short_text_may_turn_into_its_opposite(name: str, field: str) -> None:
    type = REGISTRY[name]
    key = {one: "Some name" for one in type.key_fields}
    memory = create(type, {**key, field: headed(["Drinks black tea with milk every morning."])})
    changed = update(type, memory, {field: Set(headed(["Now coffee."]))})
    assert "tea" not in str(changed[field])


def test_one_line_of_a_long_preference_may_change() -> None:
    memory = create(PREFERENCES, {"topic": "Drinks", "content": "\n".join(["- Tea at breakfast.", *FACTS])})
    changed = update(PREFERENCES, memory, {"content": patch("Tea at breakfast.", "Coffee at breakfast, no tea.")})
    assert "Coffee" in str(changed["content"])


def test_where_the_guard_begins() -> None:
    def content(words: int) -> str:
        return " ".join(f"word{n}" for n in range(words))

    short = create(PREFERENCES, {"topic": "T", "content": content(39)})
    assert update(PREFERENCES, short, {"content": Set("All new.")})["content"] == "All new."
    long = create(PREFERENCES, {"topic": "T", "content": content(40)})
    with pytest.raises(MergeError, match="must stay"):
        update(PREFERENCES, long, {"content": Set("All new.")})
    signs = create(PREFERENCES, {"topic": "T", "content": "她每天早上喝不加糖的绿茶" * 4})
    with pytest.raises(MergeError, match="must stay"):
        update(PREFERENCES, signs, {"content": Set("咖啡")})


def test_the_initial_heading_may_be_written_over() -> None:
    assert merge_write(PROFILE, create(PROFILE, {}), {"content": "Anna bakes."}) == {"content": "Anna bakes."}


def test_guidelines_need_their_headings_everywhere() -> None:
    assert update(TOOLS, tool(), {"guidelines": Set(GUIDE)})["guidelines"] == GUIDE
    bad = GUIDE.replace("### Bad Cases", "### Bad cases")
    for broken in (
        lambda: tool(guidelines=bad),
        lambda: update(TOOLS, tool(guidelines=GUIDE), {"guidelines": patch("### Bad", "#### Bad")}),
        lambda: merge_write(TOOLS, tool(), {"tool_name": "web_search", "guidelines": bad}),
        lambda: replace_all(TOOLS, {"tool_name": "web_search", "guidelines": bad}),
    ):
        with pytest.raises(MergeError, match="Bad Cases") as caught:
            broken()
        assert caught.value.field == "guidelines"


def test_a_memory_from_before_a_heading_was_asked_for_can_still_change() -> None:
    old = {**tool(), "guidelines": "free text"}
    assert update(TOOLS, old, {"total_calls": Add(1)})["total_calls"] == 1


def test_stored_fields_follow_the_type() -> None:
    old: dict[str, Any] = {"entity_name": "Bo", "content": "A dog.", "gone": "x"}
    assert update(ENTITIES, old, {}) == {"entity_name": "Bo", "entity_type": "", "content": "A dog."}


def test_replace_all() -> None:
    memory = tool(total_calls=10, best_for="Docs", abstract="a")
    replaced = replace_all(TOOLS, {"tool_name": "web_search", "total_calls": 4}, memory)
    assert (replaced["total_calls"], replaced["best_for"]) == (4, "")
    assert "abstract" not in replaced
    with pytest.raises(MergeError, match="first value"):
        replace_all(TOOLS, {"tool_name": "other"}, memory)
    sensor = create(SENSOR, {"name": "x", "maker": "A"})
    assert replace_all(SENSOR, {"name": "x"}, sensor)["maker"] == "A"
    with pytest.raises(MergeError):
        replace_all(SENSOR, {"name": "x", "place": "attic"}, sensor)


def test_what_a_direct_caller_leaves_out_or_gives_empty_is_empty() -> None:
    assert replace_all(PROFILE, {}) == replace_all(PROFILE, {"content": ""}) == {"content": ""}
    assert replace_all(PROFILE, {"content": " \n", "abstract": " "}) == {"content": " \n"}
    with pytest.raises(FieldError, match="template of tools"):
        replace_all(TOOLS, {"tool_name": "x", "content": "y"})


CHANGES = st.dictionaries(
    st.sampled_from(["tool_name", "best_for", "total_calls", "guidelines", "abstract", "success_rate", "x"]),
    st.one_of(
        st.builds(Set, st.none() | st.text(max_size=5) | st.integers(-5, 5)),
        st.builds(Add, st.integers(-5, 5)),
        st.builds(patch, st.text(max_size=3), st.text(max_size=3)),
    ),
    max_size=4,
)


@given(CHANGES)
def test_an_update_changes_what_it_names_or_nothing(changes: dict[str, FieldChange]) -> None:
    memory = tool(best_for="abc", total_calls=3, guidelines=GUIDE)
    before = dict(memory)
    try:
        after = update(TOOLS, memory, changes)
    except (MergeError, FieldError):
        assert memory == before
        return
    assert memory == before
    assert {name for name in after if after[name] != memory.get(name)} <= set(changes)
    assert after["tool_name"] == "web_search"


@given(st.lists(st.integers(0, 2**40), max_size=8))
def test_writes_of_an_extractor_add_up_in_any_number(calls: list[int]) -> None:
    memory = tool()
    for count in calls:
        memory = merge_write(TOOLS, memory, {"tool_name": "web_search", "total_calls": count})
    assert memory["total_calls"] == sum(calls)


SHORT_TEXTS = st.text(st.sampled_from("abA _01茶ß\n\N{COMBINING GREEK YPOGEGRAMMENI}"), max_size=6)


@given(SHORT_TEXTS, SHORT_TEXTS, SHORT_TEXTS, SHORT_TEXTS, SHORT_TEXTS)
def test_kept_and_still_holds_equal_a_comparison_of_all_words(
    start: str, old: str, new: str, end: str, summary: str
) -> None:
    before, after = start + old + end, start + new + end
    old_words, new_words = Counter(split_words(before)), Counter(split_words(after))
    letters = sum(len(word) * count for word, count in old_words.items())
    share = sum(len(word) * count for word, count in (old_words & new_words).items()) / letters if letters else 1.0
    assert kept(before, after) == share
    old_plain, new_plain, summary_words = (Counter(plain_words(text)) for text in (before, after, summary))
    fewer = {word for word, count in old_plain.items() if new_plain[word] < count}
    gone = {word for word in fewer if any(map(str.isdigit, word)) or not new_plain[word]}
    assert still_holds(summary, before, after) == (share >= KEPT_WITH_SUMMARY and gone.isdisjoint(summary_words))


def plain_words(text: str) -> list[str]:
    return [word.lstrip("0") if word.isdecimal() else word for word in split_words(text.casefold())]
