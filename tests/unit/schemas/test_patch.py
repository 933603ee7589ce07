import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runekeep_schemas.documents.patch import (
    MAX_BLOCKS,
    MAX_SEARCHED_CHARACTERS,
    PatchError,
    SearchReplaceBlock,
    apply_blocks,
    format_blocks,
    is_patch,
    parse_blocks,
)

TEXT = "one\ntwo\nthree\ntwo\nfive\ntwo"


def block(search: str, replace: str, line: int | None = None) -> SearchReplaceBlock:
    return SearchReplaceBlock(search, replace, line)


def test_parse_the_documented_form() -> None:
    text = (
        "<<<<<<< SEARCH\n:start_line:10\n-------\nold\n\nlines\n=======\nnew\n>>>>>>> REPLACE\n"
        "\n<<<<<<< SEARCH\n-------\nx\n=======\n>>>>>>> REPLACE\n"
    )
    assert parse_blocks(text) == [block("old\n\nlines", "new", 10), block("x", "")]
    assert is_patch(text) and not is_patch("plain <<<<<<< SEARCH text")


def test_fences_and_blanks_at_line_ends_are_passed_over() -> None:
    text = "```diff\n<<<<<<< SEARCH \r\n:start_line: 3\r\n-------\r\nold\n=======  \nnew\n>>>>>>> REPLACE\n```\n"
    assert parse_blocks(text) == [block("old", "new", 3)]


def test_odd_characters_are_no_line_ends() -> None:
    odd = "a\u2028=======\u2028b\x0bc\x0cd\x85e\rf\u2029g"
    text = format_blocks([block(odd, odd + "!", 2)])
    assert parse_blocks(text) == [block(odd, odd + "!", 2)]
    assert apply_blocks(f"x\n{odd}\ny", [block(odd, "z", 2)]) == "x\nz\ny"
    assert apply_blocks("k\u2028k\nv\nv", [block("v", "w", 2)]) == "k\u2028k\nw\nv"


@pytest.mark.parametrize(
    ("text", "index", "reason"),
    [
        ("", 0, "no block"),
        ("just text", 0, "outside"),
        ("<<<<<<< SEARCH\n-------\na\n=======\nb\n>>>>>>> REPLACE\nand more", 1, "outside"),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", 0, "-------"),
        ("<<<<<<< SEARCH\n:start_line:0\n-------\na\n=======\nb\n>>>>>>> REPLACE", 0, "start_line"),
        ("<<<<<<< SEARCH\n:start_line:two\n-------\na\n=======\nb\n>>>>>>> REPLACE", 0, "start_line"),
        ("<<<<<<< SEARCH\n:start_line:²\n-------\na\n=======\nb\n>>>>>>> REPLACE", 0, "start_line"),
        ("<<<<<<< SEARCH\n:start_line:1", 0, "-------"),
        ("<<<<<<< SEARCH\n-------\na\n>>>>>>> REPLACE", 0, ">>>>>>> REPLACE comes where"),
        ("<<<<<<< SEARCH\n-------\na\n=======\nb", 0, "missing"),
        ("<<<<<<< SEARCH\n-------\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE", 0, "======= comes where"),
        ("<<<<<<< SEARCH\n-------\na\n<<<<<<< SEARCH\n", 0, "<<<<<<< SEARCH comes where"),
    ],
)
def test_broken_blocks_are_refused(text: str, index: int, reason: str) -> None:
    with pytest.raises(PatchError) as caught:
        parse_blocks(text)
    assert caught.value.block_index == index
    assert reason in caught.value.reason


def test_text_with_marker_lines_is_not_written() -> None:
    with pytest.raises(PatchError) as caught:
        format_blocks([block("a", "b"), block("title\n=======", "c")])
    assert caught.value.block_index == 1
    assert apply_blocks("title\n=======\nx", [block("title\n=======", "# title")]) == "# title\nx"


def test_without_a_hint_the_text_must_occur_once() -> None:
    assert apply_blocks(TEXT, [block("three", "3")]) == "one\ntwo\n3\ntwo\nfive\ntwo"
    with pytest.raises(PatchError, match="more than once"):
        apply_blocks(TEXT, [block("two", "2")])
    with pytest.raises(PatchError, match="does not occur"):
        apply_blocks(TEXT, [block("Three", "3")])
    with pytest.raises(PatchError, match="more than once"):
        apply_blocks("aaa", [block("aa", "b")])


@pytest.mark.parametrize(
    ("hint", "result"),
    [
        (1, "one\n2\nthree\ntwo\nfive\ntwo"),
        (2, "one\n2\nthree\ntwo\nfive\ntwo"),
        (4, "one\ntwo\nthree\n2\nfive\ntwo"),
        (6, "one\ntwo\nthree\ntwo\nfive\n2"),
        (900, "one\ntwo\nthree\ntwo\nfive\n2"),
    ],
)
def test_the_nearest_place_is_meant(hint: int, result: str) -> None:
    assert apply_blocks(TEXT, [block("two", "2", hint)]) == result


@pytest.mark.parametrize("hint", [3, 5])
def test_two_places_equally_near_are_refused(hint: int) -> None:
    with pytest.raises(PatchError, match="at that distance"):
        apply_blocks(TEXT, [block("two", "2", hint)])


def test_two_places_in_the_line_named_are_refused() -> None:
    with pytest.raises(PatchError, match="at that distance"):
        apply_blocks("x\ntea and tea\ntea", [block("tea", "coffee", 2)])
    assert apply_blocks("x\ntea and tea\ntea", [block("tea", "coffee", 3)]) == "x\ntea and tea\ncoffee"


def test_a_far_hint_does_no_harm_where_the_text_is_unique() -> None:
    assert apply_blocks(TEXT, [block("five", "5", 1)]) == TEXT.replace("five", "5")


def test_hints_count_lines_before_any_block() -> None:
    blocks = [block("one", "a\nb\nc\nd", 1), block("two", "2", 4), block("two", "II", 6), block("three", "3\n3", 3)]
    assert apply_blocks(TEXT, blocks) == "a\nb\nc\nd\ntwo\n3\n3\n2\nfive\nII"
    back = [block("two\nfive\ntwo", "end", 4), block("two", "2", 2), block("end", "END", 4)]
    assert apply_blocks(TEXT, back) == "one\n2\nthree\nEND"


def test_all_blocks_or_none() -> None:
    with pytest.raises(PatchError) as caught:
        apply_blocks(TEXT, [block("one", "1"), block("three", "3"), block("one", "?")])
    assert caught.value.block_index == 2


def test_an_empty_field_can_be_set_and_no_other() -> None:
    assert apply_blocks("", [block("", "new")]) == "new"
    assert apply_blocks("", [block("", "new"), block("new", "newer")]) == "newer"
    with pytest.raises(PatchError, match="empty"):
        apply_blocks("x", [block("", "new")])
    with pytest.raises(PatchError, match="does not occur"):
        apply_blocks("", [block("x", "new")])


def test_no_blocks_change_nothing() -> None:
    assert apply_blocks(TEXT, []) == TEXT


def test_many_places_are_found_in_reasonable_time() -> None:
    text = "a" * 100_000 + "\n" + "a\n" * 100_000
    assert apply_blocks(text, [block("a\n", "b\n", 70_000)]).count("b") == 1
    with pytest.raises(PatchError):
        apply_blocks(text, [block("a" * 500, "b", 1)])


@pytest.mark.parametrize("step", [1, -1])
def test_as_many_blocks_as_a_patch_may_have(step: int) -> None:
    lines = [f"line {number}" for number in range(MAX_BLOCKS + 1)]
    blocks = [block(line, line.upper(), number) for number, line in enumerate(lines, 1)][::step]
    text = "\n".join(lines)
    assert apply_blocks(text, blocks[:-1]).count("LINE") == MAX_BLOCKS
    with pytest.raises(PatchError, match="at most 1000") as refused:
        apply_blocks(text, blocks)
    assert refused.value.block_index == MAX_BLOCKS


def test_the_work_of_a_patch_is_bounded() -> None:
    text = "a" * (MAX_SEARCHED_CHARACTERS // 8) + "".join(f"<{number}>" for number in range(100))
    blocks = [block(f"<{number}>", "") for number in range(100)]
    assert len(apply_blocks(text, blocks[:7])) == len(text) - 7 * 3
    with pytest.raises(PatchError, match="too long for so many blocks"):
        apply_blocks(text, blocks)
    # A single block may always search the whole text, but may not match in too many places.
    length = MAX_SEARCHED_CHARACTERS + 1
    assert apply_blocks("a" * length + "b", [block("b", "")]).count("a") == length
    with pytest.raises(PatchError, match="too often"):
        apply_blocks("a\n" * 200_000, [block("a", "b", 200_000)])


SMALL = st.text("ab\n\u2028 ", max_size=30)
LINES = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n=<>-\u2028\r"), max_size=60)


@given(st.lists(st.builds(block, LINES, LINES, st.none() | st.integers(1, 10**8)), min_size=1, max_size=4))
def test_what_is_written_is_read_back(blocks: list[SearchReplaceBlock]) -> None:
    try:
        text = format_blocks(blocks)
    except PatchError:
        assume(False)
    assert parse_blocks(text) == blocks


@given(SMALL, st.text("ab\n", min_size=1, max_size=3), SMALL, st.none() | st.integers(1, 12))
def test_text_that_was_not_named_never_changes(text: str, search: str, new: str, hint: int | None) -> None:
    """Against the plain reading of the rule: of all places, the one that is nearest, alone."""
    places = [at for at in range(len(text)) if text.startswith(search, at)]
    lines = {at: text.count("\n", 0, at) + 1 for at in places}
    distance = {at: abs(lines[at] - hint) if hint else 0 for at in places}
    nearest = [at for at in places if distance[at] == min(distance.values())]
    if len(nearest) == 1:
        at = nearest[0]
        assert apply_blocks(text, [block(search, new, hint)]) == text[:at] + new + text[at + len(search) :]
    else:
        with pytest.raises(PatchError):
            apply_blocks(text, [block(search, new, hint)])


@given(st.lists(st.sampled_from(["keep", "tea", "other"]), min_size=1, max_size=8), st.data())
def test_each_of_several_edits_hits_the_line_it_names(lines: list[str], data: st.DataObject) -> None:
    """Edits of different lines in any order, each named by its line in the first text."""
    chosen = data.draw(st.permutations(range(len(lines))))[: data.draw(st.integers(1, 3))]
    news = {at: data.draw(st.sampled_from(["", "x", "x\ny\nz", "\n\n"])) for at in chosen}
    blocks = [block(lines[at], new, at + 1) for at, new in news.items()]
    expected = "\n".join(news.get(at, line) for at, line in enumerate(lines))
    assert apply_blocks("\n".join(lines), blocks) == expected
