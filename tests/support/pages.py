"""Reads pages of the documentation: their sections, tables and examples."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DEFAULT_ADDRESS = "127.0.0.1:7433"
"""The address that examples name."""


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next one of its rank or above."""
    text = page.read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"{page.name} has no heading {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def first_cells(text: str) -> set[str]:
    """The words in code style that stand in the first column of tables."""
    return set(re.findall(r"^\| `([A-Za-z_]+)` \|", text, re.MULTILINE))


def example(page: Path, name: str) -> str:
    """The code block behind the mark `<!-- example: NAME -->`."""
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w*\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert found, f"{page.name} has no example {name}"
    return found[1]
