"""Every fault that the page on reliability names has tests, and those tests are there."""

import ast
import re

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
