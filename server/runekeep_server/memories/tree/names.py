"""Names of documents and directories."""

from typing import Final

from runekeep_schemas.documents.uris import ABSTRACT_FILE, OVERVIEW_FILE

PLACES: Final = ("memories", "peers", "sessions", "skills")
VIEWS: Final = (ABSTRACT_FILE, OVERVIEW_FILE)
MESSAGES: Final = "messages.jsonl"
HISTORY: Final = "history"
DIFF: Final = "memory_diff.json"
DONE: Final = ".done"
ARCHIVED: Final = (ABSTRACT_FILE, DONE, OVERVIEW_FILE, DIFF, MESSAGES)
"""Documents of an archive whose commit is finished, sorted by name."""
TOOLS: Final = "tools"
TOOL: Final = "tool.json"
OUTPUT: Final = "output.txt"
"""A large tool output, unchanged. `tool.json` holds it too, with the rest of the call."""
CALL: Final = (TOOL,)
"""Documents of a tool call whose output is in its message."""
KEPT: Final = (OUTPUT, TOOL)
"""Documents of a tool call with a large output, sorted by name."""
BUCKETS: Final = "buckets"
BUCKET: Final = "bucket.json"
"""A memory bucket with its whole timeline."""


def archive_name(index: int) -> str:
    return f"archive_{index:03d}"
