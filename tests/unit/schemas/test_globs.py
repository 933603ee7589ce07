"""Patterns of paths, beside a matcher that tries everything."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_server.memories.tree.globs import Glob, GlobError

NAMES = st.text(alphabet="ab.*?[]é!-\u2028", min_size=1, max_size=4)
PATHS = st.lists(NAMES, min_size=1, max_size=5)
PIECES = st.sampled_from(["a", "b", ".", "é", "*", "?", "[a]", "[!a]", "[a-b]", "[*]", "[]]", "[", "]", "!", "-"])
PATTERNS = st.lists(
    st.one_of(st.just("**"), st.lists(PIECES, min_size=1, max_size=4).map("".join)), min_size=1, max_size=5
)


def fits_name(pattern: str, name: str) -> bool:
    """By trying every way to part the name."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(fits_name(pattern[1:], name[taken:]) for taken in range(len(name) + 1))
    group = re.match(r"\[(!?)(\]?[^\]]*)\]", pattern)
    if not name:
        return False
    if group:
        # Escapes a bracket in a range too, because `re` warns that it could begin a nested set.
        members = group[2].replace("[", r"\[") if "-" in group[2] else re.escape(group[2])
        inside = bool(re.fullmatch(f"[{members}]", name[0]))
        return inside != bool(group[1]) and fits_name(pattern[group.end() :], name[1:])
    return pattern[0] in ("?", name[0]) and fits_name(pattern[1:], name[1:])


def fits(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(fits(pattern[1:], path[taken:]) for taken in range(len(path) + 1))
    return bool(path) and fits_name(pattern[0], path[0]) and fits(pattern[1:], path[1:])


@given(PATTERNS, PATHS)
def test_a_path_fits_as_trying_everything_says(pattern: list[str], path: list[str]) -> None:
    # What a bracket that is never closed means beside one that is, fnmatch says in its own way.
    if any(name.count("[") > 1 and "[]" in name for name in pattern):
        return
    assert Glob("/".join(pattern)).matches(tuple(path)) == fits(pattern, path)


@given(PATTERNS, PATHS)
def test_no_directory_is_passed_over_that_holds_a_fit(pattern: list[str], path: list[str]) -> None:
    glob = Glob("/".join(pattern))
    if glob.matches(tuple(path)):
        assert all(glob.may_hold(tuple(path[:depth])) for depth in range(len(path)))


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**/*.md", "memories/preferences/Tea.md", True),
        ("**/*.md", "profile.md", True),
        ("*/*.md", "memories/preferences/Tea.md", False),
        ("sessions/*/history/**/memory_diff.json", "sessions/s/history/archive_001/memory_diff.json", True),
        ("memories/**", "memories", True),
        ("memories/**", "memories/a/b", True),
        ("**/.*", "memories/.abstract.md", True),
        ("[*].md", "*.md", True),
        ("[*].md", "a.md", False),
        ("[!a-c].md", "d.md", True),
        ("cafe\u0301", "café", True),
        ("A.md", "a.md", False),
        ("a**b", "a/b", False),
        ("a**b", "axxb", True),
        ("a[", "a[", True),
    ],
)
def test_what_the_signs_mean(pattern: str, path: str, expected: bool) -> None:
    assert Glob(pattern).matches(tuple(path.split("/"))) is expected


@pytest.mark.parametrize("pattern", ["", "/a", "a/", "a//b", "/"])
def test_an_empty_name_is_refused(pattern: str) -> None:
    with pytest.raises(GlobError):
        Glob(pattern)


def test_a_directory_that_cannot_hold_a_fit_is_known() -> None:
    glob = Glob("sessions/*/messages.jsonl")
    assert glob.may_hold(()) and glob.may_hold(("sessions",)) and glob.may_hold(("sessions", "s"))
    assert not glob.may_hold(("memories",)) and not glob.may_hold(("sessions", "s", "history"))
    assert not Glob("**").matches(())


def test_no_pattern_takes_long() -> None:
    """Backtracking over a hundred stars would never end; the test would."""
    assert not Glob("*a" * 300 + "b").matches(("a" * 255,))
    assert not Glob("*?a" * 300 + "*b").matches(("a" * 255,))
    assert not Glob("/".join(["**", "*x"] * 100)).matches(("a",) * 120)
    assert Glob("/".join(["**", "*"] * 50)).matches(("a",) * 120)
