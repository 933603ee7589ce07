"""The pages on reliability and threats against the code: each row has tests that are there, and all failpoints are
named."""

import re

from runekeep_common import failpoints
from tests.named_tests import missing, named
from tests.support.pages import DOCS, section

PROMISES = "Promises and their tests"
FAULTS = 22
"""Rows of the table: as many as the design lists."""


def test_each_fault_has_tests_that_are_there() -> None:
    text = section(DOCS / "design" / "reliability.md", "Faults")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == FAULTS
    for fault, holds, tests in rows:
        assert holds
        are_there(fault, tests)


def test_each_promise_has_tests_that_are_there() -> None:
    text = section(DOCS / "design" / "reliability.md", PROMISES).partition("| Failpoints")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 9
    for promise, tests in rows:
        are_there(promise, tests)


def test_each_threat_has_tests_that_are_there() -> None:
    lines = (DOCS / "operate" / "security.md").read_text().partition("\n## ")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    who = " ".join(row[0] for row in rows)
    for party in ("caller", "worker", "operator", "model", "conversation", "network", "tenant", "disk"):
        assert party in who
    for party, *holds, tests in rows:
        assert len(holds) == 3 and all(holds), party
        are_there(party, tests)


def are_there(what: str, tests: str) -> None:
    """The cell names tests and nothing else, and all of them are functions of their files."""
    found = named(tests)
    assert found and len(found) == tests.count("`") // 2, what
    assert missing(tests) == [], what


def test_the_failpoints_are_those_of_the_code() -> None:
    page = DOCS / "design" / "reliability.md"
    killed = failpoints_in(section(page, "Processes killed at every step").partition("| Failpoints | Where |")[2])
    assert killed == sorted((*failpoints.SERVER, *failpoints.EXTRACTOR))
    erasing = section(page, PROMISES)
    assert failpoints_in(erasing.partition("| Failpoints of erasures | Where |")[2]) == sorted(failpoints.ERASURE)


def failpoints_in(table: str) -> list[str]:
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    return sorted(name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0]))
