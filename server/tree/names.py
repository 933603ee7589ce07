"""Names of documents and directories."""

from typing import Final

from schemas.uris import ABSTRACT_FILE, OVERVIEW_FILE

PLACES: Final = ("memories", "peers", "sessions", "skills")
VIEWS: Final = (ABSTRACT_FILE, OVERVIEW_FILE)
MESSAGES: Final = "messages.jsonl"
HISTORY: Final = "history"
DIFF: Final = "memory_diff.json"
DONE: Final = ".done"
ARCHIVED: Final = (ABSTRACT_FILE, DONE, OVERVIEW_FILE, DIFF, MESSAGES)
"""What is in an archive whose commit is finished, by name."""
TOOLS: Final = "tools"
TOOL: Final = "tool.json"
OUTPUT: Final = "output.txt"
"""The output that `tool.json` frames, as it is."""
KEPT: Final = (OUTPUT, TOOL)
"""What is kept of a tool's call, by name."""
BUCKETS: Final = "buckets"
BUCKET: Final = "bucket.json"
"""A memory bucket with its whole timeline."""


def archive_name(index: int) -> str:
    return f"archive_{index:03d}"
