"""Converts responses about sessions to what `results` declares."""

from typing import Any

from runekeep.client.sessions.results import MemoryDiff
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import session_service_pb2


def memory_diff_from_wire(wire: session_service_pb2.MemoryDiff) -> MemoryDiff:
    answer = to_json(wire)

    def changes(name: str, **texts: str) -> list[dict[str, Any]]:
        kept = ("uri", "memory_type", "version", "reason", "message_ids", "shortened")
        return [
            {**{key: change[key] for key in kept}, **{key: change[source] for key, source in texts.items()}}
            for change in answer[name]
        ]

    diff = {
        "archive_uri": answer["archive_uri"],
        "extracted_at": answer["extract_time"],
        "operations": {
            "adds": changes("adds", after="after"),
            "updates": changes("updates", before="before", after="after"),
            "deletes": changes("deletes", deleted_content="before"),
        },
        "summary": {f"total_{name}": len(answer[name]) for name in ("adds", "updates", "deletes")},
        "revision": answer["revision"],
        "extractor": answer["extractor"],
    }
    return MemoryDiff(diff)
