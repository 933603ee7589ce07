"""The page on reliability against the code: its faults have tests that are there, its failpoints are all there are."""

import ast
import re

from schemas import failpoints
from tests.acceptance.test_docs import DOCS, ROOT, section

FAULTS = 15
"""Rows of the table: as many as the design lists."""


def test_each_fault_has_tests_that_are_there() -> None:
    text = section(DOCS / "reliability.md", "Faults")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == FAULTS
    for fault, holds, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert holds and named and len(named) == tests.count("`") // 2, fault
        for path, name in named:
            tree = ast.parse((ROOT / path).read_text())
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert name in functions, f"{fault}: there is no {path}::{name}"


def test_the_failpoints_are_those_of_the_code() -> None:
    text = section(DOCS / "reliability.md", "Processes killed at every step")
    rows = text.partition("| Failpoints | Where |")[2].splitlines()[2:]
    named = [name for row in rows if row.startswith("| `") for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert sorted(named) == sorted((*failpoints.SERVER, *failpoints.EXTRACTOR))
