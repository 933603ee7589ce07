"""What directories say of themselves: which members come first, in which shape, and how long it gets."""

from runekeep_server.memories.tree.directory_text import (
    Member,
    by_rank,
    directory_abstract,
    directory_overview,
)


def memory(name: str, abstract: str = "", *, at: int = 0, uses: int = 0) -> Member:
    return Member(f"{name}.md", abstract, at, uses)


def test_the_newest_and_the_most_used_take_turns() -> None:
    members = [memory(name, at=at) for at, name in enumerate("abcdef")]
    used = [memory("often", at=-2, uses=9), memory("seldom", at=-1, uses=1)]
    ranked = [one.title for one in by_rank([*members, *used])]
    assert ranked == ["f", "often", "e", "seldom", "d", "c", "b", "a"]
    assert by_rank(reversed([*members, *used])) == by_rank([*members, *used])
    both = [memory("a", at=1, uses=5), memory("b", at=2, uses=5), memory("c", at=3)]
    assert [one.title for one in by_rank(both)] == ["c", "b", "a"], "of equal uses the newer, and nothing twice"


def test_an_abstract_says_how_many_there_are_and_what_the_first_are_about() -> None:
    members = [
        memory("Tea", "Drinks\ngreen tea.", at=1),
        memory("grep", "grep: Finds text.", at=2),
        memory("Rex", at=3),
    ]
    assert directory_abstract(members, 3) == "3 memories: Rex; grep: Finds text; Tea: Drinks green tea"
    assert directory_abstract(members[:1], 1) == "1 memory: Tea: Drinks green tea"
    assert directory_abstract(members[:1], 1000, more=True) == "more than 1000 memories: Tea: Drinks green tea"
    assert directory_abstract([], 0) == directory_overview([], 0) == ""


def test_an_overview_has_a_line_for_each_member_and_names_what_is_left_out() -> None:
    members = [memory("Tea", "Drinks green tea.", at=1), Member("events", "2 memories: a; b", 2, 0, is_directory=True)]
    assert directory_overview(members, 2) == "- events/: 2 memories: a; b\n- Tea: Drinks green tea."
    assert directory_overview(members, 5).endswith("\n- and 3 more")
    assert directory_overview(members, 5, more=True).endswith("\n- and more than 3 more")
    assert directory_overview(members, 2, more=True).endswith("\n- and more")


def test_both_are_kept_within_a_size() -> None:
    members = [memory(f"{number:04}", "word " * 100, at=number) for number in range(1000)]
    abstract = directory_abstract(members, 1000)
    assert abstract.startswith("1000 memories: 0999: word") and "; 0998: word" in abstract and len(abstract) <= 256
    assert len(abstract) > 200
    lines = (overview := directory_overview(members, 1000)).split("\n")
    assert 3800 < len(overview) < 4100 and lines[0].startswith("- 0999: word")
    assert max(map(len, lines)) <= 258 and lines[-1] == f"- and {1000 - (len(lines) - 1)} more"
