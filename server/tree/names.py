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
"""An output that is kept apart, as it is; `tool.json` has it among the rest of the call."""
CALL: Final = (TOOL,)
"""What there is of a tool call whose output is in its message."""
KEPT: Final = (OUTPUT, TOOL)
"""What there is of a tool call whose output is kept apart, by name."""
BUCKETS: Final = "buckets"
BUCKET: Final = "bucket.json"
"""A memory bucket with its whole timeline."""


def archive_name(index: int) -> str:
    return f"archive_{index:03d}"
