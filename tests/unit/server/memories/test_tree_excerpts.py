"""Documents read in parts: every part is bounded, and all parts are the document."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runekeep_server.memories.tree import excerpts
from runekeep_server.memories.tree.excerpts import CharacterRange, Excerpt, LineRange, Range


def _of(text: str, part: Range) -> Excerpt:
    for line in text.split("\n") if text else ():
        part.take(line)
    return part.excerpt()


def of_lines(text: str, offset: int, limit: int) -> Excerpt:
    return _of(text, LineRange(offset, limit))


def of_characters(text: str, start: int, length: int) -> Excerpt:
    return _of(text, CharacterRange(start, length))


MOST = 300
TEXTS = st.lists(st.text(alphabet="aé漢😀\u2028 ", min_size=60, max_size=150), min_size=4, max_size=8).map("\n".join)

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "MAX_BYTES", MOST)


unchanged = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@unchanged
@given(TEXTS)
def test_characters_make_the_document(text: str) -> None:
    parts, start = [], 0
    while True:
        part = of_characters(text, start, 0)
        assert len(part.text.encode()) <= MOST and part.total_characters == len(text)
        assert part.total_lines == (text.count("\n") + 1 if text else 0)
        parts.append(part.text)
        if not part.following:
            break
        assert part.following > start
        start = part.following
    assert "".join(parts) == text


@unchanged
@given(TEXTS, st.integers(0, 2000), st.integers(1, 300))
def test_a_range_of_characters_is_that_range(text: str, start: int, length: int) -> None:
    part = of_characters(text, start, length)
    wanted = text[start : start + length]
    assert wanted.startswith(part.text) and len(part.text.encode()) <= MOST
    if len(wanted.encode()) <= MOST:
        assert part.text == wanted
    assert part.following in (0, start + len(part.text)) and (part.following == 0) == (
        start + len(part.text) >= len(text)
    )


@unchanged
@given(TEXTS)
def test_lines_make_the_document_but_for_what_is_cut_and_says_so(text: str) -> None:
    lines = text.split("\n") if text else []
    offset = 0
    while True:
        part = of_lines(text, offset, -1)
        assert len(part.text.encode()) <= MOST and (part.total_lines, part.total_characters) == (len(lines), len(text))
        reached = part.following or len(lines)
        if part.text != "\n".join(lines[offset:reached]):
            assert reached == offset + 1 and len(lines[offset].encode()) > MOST
            rest, _, _ = text[part.cut_at :].partition("\n")
            assert rest and part.text + rest == lines[offset]
        else:
            assert not part.cut_at
        if not part.following:
            break
        assert part.following > offset
        offset = part.following


def test_a_range_of_lines() -> None:
    text = "\n".join(map(str, range(10)))
    assert of_lines(text, 2, 3).text == "2\n3\n4" and of_lines(text, 2, 3).following == 5
    assert of_lines(text, 8, 9).text == "8\n9" and of_lines(text, 8, 9).following == 0
    assert of_lines(text, 10, 1).text == "" and of_lines(text, 2**63 - 1, 2**63 - 1).following == 0
    assert of_lines("", 0, -1) == excerpts.Excerpt("", 0, 0, 0)
    assert of_lines("\n", 0, -1) == excerpts.Excerpt("\n", 0, 2, 1)
