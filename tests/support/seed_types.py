"""Type files of the page that they come from, which lies beside the project's checkout and is no part of it.

The page has lost its indentation. It is put back here and nothing else is changed: every line of a file is a line of
the page.
"""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "shared" / "seeds" / "memory-templating-design.md"

_KEYS = r"(?:name|description|directory|filename_template|content_template|fields):"
_FIELD_KEYS = r"(?:type|description|merge_op):"


def seed_type(name: str) -> str:
    """The file of a type."""
    lines = PAGE.read_text(encoding="utf-8").split("\n")
    first = lines.index(f"{name}.yaml") + 1
    made: list[str] = []
    ends: str | None = None
    """What the line after a block of text begins with; None outside of one."""
    in_fields = False
    for line in lines[first:]:
        if re.fullmatch(r"[a-z]+\.yaml", line) or line.startswith("Memory File Storage Format Example"):
            break
        if ends is not None and not re.match(ends, line):
            made.append(f"{'      ' if in_fields else '  '}{line}")
            continue
        if line.startswith("- name: "):
            made.append(f"  {line}")
        elif in_fields:
            made.append(f"    {line}")
        else:
            assert re.match(_KEYS, line), line
            in_fields = line == "fields:"
            made.append(line)
        ends = None
        if line.endswith(": |"):
            ends = rf"- name: |{_FIELD_KEYS}" if in_fields else _KEYS
    return "\n".join(made) + "\n"


def seed_memory() -> tuple[list[str], str]:
    """The memory that the page shows: the lines of its content, and its fields as JSON."""
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^(Tool: web_search\n.*?)\n<!-- MEMORY_FIELDS\n(.*?)\n-->", page, re.MULTILINE | re.DOTALL)
    assert found, "the page shows no memory"
    return found[1].split("\n"), found[2]
