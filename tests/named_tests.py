"""Finds tests that pages name and that do not exist. `make check` runs `python -m tests.named_tests`, which checks all
pages and exits with 1 if a test is missing."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def named(text: str) -> list[tuple[str, str]]:
    """Returns the tests that a text names as `tests/path.py::test_name`, each as (path, name)."""
    return NAMED.findall(text)


def missing(text: str) -> list[str]:
    """Returns those of the tests in a text that do not exist, as `path::name`."""
    return [f"{path}::{name}" for path, name in named(text) if name not in _tests(ROOT / path)]


@cache
def _tests(file: Path) -> frozenset[str]:
    if not file.exists():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(file.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, functions) and node.name.startswith("test_"))


def main() -> int:
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    found = [(page.relative_to(ROOT), test) for page in pages for test in missing(page.read_text())]
    for page, test in found:
        print(f"{page}: there is no {test}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
