import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runekeep_schemas.documents.filenames import FileNameError, memory_uri, render_filename, type_directory
from runekeep_schemas.documents.uris import canonicalize, parse
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry

REGISTRY = Registry.load()
PREFERENCES, EVENTS, PATTERNS = REGISTRY["preferences"], REGISTRY["events"], REGISTRY["patterns"]


def topic(name: str) -> str:
    return render_filename(PREFERENCES, {"topic": name})


def event(time: str, name: str) -> str:
    return render_filename(EVENTS, {"event_time": time, "event_name": name})


@pytest.mark.parametrize(
    "name",
    [
        "Python code style",
        "饮食偏好",
        "Кофе",
        "קפה",
        "قهوه\u200cای",
        "नाश्ता",
        "Import hangs → Read in chunks",
        "A: b?",
        "👩\u200d🚀",
    ],
)
def test_names_in_any_script_stay_readable(name: str) -> None:
    assert topic(name) == f"{name}.md"


def test_names_of_one_reading_are_one_file() -> None:
    assert topic("Mu\u0308ller ") == topic("M\u00fcller") == "M\u00fcller.md"


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("../../etc/passwd", "_._.._etc_passwd~"),
        ("a\\b", "a_b~"),
        (".hidden", "_hidden~"),
        ("..", "_.~"),
        ("a\nb\x00c", "a_b_c~"),
        ("a\u2028b", "a_b~"),
        ("a\u202eb", "a_b~"),
        ("/", "_~"),
        ("a~0123456789", "a~0123456789~"),
    ],
)
def test_what_is_unsafe_is_replaced_and_marked(name: str, start: str) -> None:
    rendered = topic(name)
    assert rendered.startswith(start)
    assert len(rendered) == len(start) + 10 + len(".md")


def test_a_long_name_is_cut_between_letters() -> None:
    letters = ["é", "\u1eb9\u0303", "北", "👩\u200d"]
    for letter in letters:
        name, longer = topic(letter * 300), topic(letter * 301)
        assert name != longer
        assert 180 < len(name.encode()) <= 200
        kept = name[: name.index("~")]
        assert kept == letter * (len(kept) // len(letter))


def test_an_event_without_a_time_has_no_prefix() -> None:
    assert event("2026-03-17", "Moved to Oslo") == "2026-03-17_Moved to Oslo.md"
    assert event("", "Moved to Oslo") == "Moved to Oslo.md"
    assert render_filename(EVENTS, {"event_name": "Moved to Oslo"}) == "Moved to Oslo.md"


def test_time_and_name_never_swap_letters() -> None:
    names = {event("2026", "a_b"), event("2026_a", "b"), event("", "2026_a_b"), event("2026", "a_b ")}
    assert len(names) == 3
    assert event("2026", "a_b") == "2026_a_b.md"


@pytest.mark.parametrize("fields", [{}, {"event_time": "2026"}, {"event_name": " \n"}])
def test_a_memory_without_a_name_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(FileNameError, match="event_name"):
        render_filename(EVENTS, fields)


def test_uris() -> None:
    assert memory_uri(REGISTRY["profile"], {}, "alice") == "viking://user/alice/memories/profile.md"
    assert memory_uri(PREFERENCES, {"topic": "Tea"}, "alice", "bob") == (
        "viking://user/alice/peers/bob/memories/preferences/Tea.md"
    )
    assert memory_uri(PATTERNS, {"pattern_name": "A: B"}, "alice") == "viking://user/alice/memories/patterns/A: B.md"
    assert memory_uri(SESSION_SKILLS, {"skill_name": "x"}, "alice") == "viking://user/alice/skills/x.md"
    assert type_directory(REGISTRY["tools"], "alice") == "viking://user/alice/memories/tools"


NAMES = st.text(st.one_of(st.sampled_from("ab_~./\\:01e\u0301\u200d\n "), st.characters()), min_size=1, max_size=40)
LONG = st.integers(1, 400).flatmap(lambda n: st.sampled_from(["x", "é", "北", "a/"]).map(lambda c: c * n))


def normal(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


@given(NAMES | LONG)
def test_every_name_is_a_safe_segment(name: str) -> None:
    assume(normal(name))
    uri = memory_uri(PREFERENCES, {"topic": name}, "alice")
    assert len(uri.rpartition("/")[2].encode()) <= 200
    assert canonicalize(uri, "alice") == uri
    assert len(parse(uri).path) == 2
    assert not parse(uri).path[-1].startswith(".")


@given(st.tuples(NAMES | st.just(""), NAMES | LONG), st.tuples(NAMES | st.just(""), NAMES | LONG))
def test_two_events_never_share_a_file(one: tuple[str, str], other: tuple[str, str]) -> None:
    one, other = (normal(one[0]), normal(one[1])), (normal(other[0]), normal(other[1]))
    assume(one[1] and other[1] and one != other)
    assert event(*one) != event(*other)


PIECES = st.lists(st.sampled_from(["a", "_", "~", "/", ".", "b"]), max_size=5).map("".join)


@given(PIECES, PIECES, PIECES, PIECES)
def test_two_events_of_few_letters_never_share_a_file(t1: str, n1: str, t2: str, n2: str) -> None:
    assume(n1 and n2 and (t1, n1) != (t2, n2))
    assert event(t1, n1) != event(t2, n2)


def test_a_name_cannot_pose_as_the_cut_form_of_another() -> None:
    hashed = topic("a/b").removesuffix(".md")
    assert topic(hashed) != f"{hashed}.md"
