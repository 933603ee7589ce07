"""The page on the seeds: each behaviour says what Runekeep does and names tests that exist."""

import re

from tests.acceptance.test_reliability_page import are_there
from tests.named_tests import missing
from tests.support.pages import DOCS

PAGE = DOCS / "design" / "seeds.md"
WORDS = re.compile(r"(same|better|not)\b")


def test_each_behaviour_says_what_we_do_and_has_tests_that_are_there() -> None:
    behaviours = []
    for part in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        assert rows[0] == ["behaviour", "Runekeep", "tests"], title
        for row in rows[1:]:
            behaviour, done, tests = row
            said = WORDS.match(done)
            assert said, f"{behaviour}: {done}"
            assert said[1] not in ("better", "not") or len(done.split()) > 3, f"{behaviour}: without a reason"
            are_there(behaviour, tests)
            behaviours.append(behaviour)
    assert len(behaviours) > 120
    assert len(behaviours) == len(set(behaviours))


def test_a_test_that_is_gone_is_found() -> None:
    gone = "`tests/acceptance/test_seeds_page.py::test_that_is_gone`, `tests/no_such_file.py::test_x`"
    there = "`tests/acceptance/test_seeds_page.py::test_a_test_that_is_gone_is_found`"
    assert missing(f"{there}, {gone}") == gone.replace("`", "").split(", ")
