"""Lists feedback, of one session or of all."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from runekeep.client.connection.connection import Connection
from runekeep.client.turns.results import FeedbackList
from runekeep.client.wire.arguments import require_list, time_to_wire
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import turn_memory_service_pb2 as wire

_PAGE = 200


async def list_feedback(
    connection: Connection,
    session: str,
    turn_ids: Sequence[str],
    start_time: datetime | None,
    end_time: datetime | None,
    limit: int,
) -> FeedbackList:
    if limit < 1:
        raise ValueError(f"limit is at least 1, not {limit}")
    request = wire.ListFeedbackRequest(
        session=session,
        turn_ids=require_list(turn_ids, "turn_ids"),
        start_time=time_to_wire(start_time, "start_time"),
        end_time=time_to_wire(end_time, "end_time"),
        page_size=min(limit, _PAGE),
    )
    found: list[dict[str, Any]] = []
    while True:
        page = await connection.call(connection.stubs.turns.ListFeedback, request)
        found += map(to_json, page.feedback)
        if not page.next_page_token or len(found) >= limit:
            return FeedbackList({"feedback": found[:limit], "counts": to_json(page.counts)})
        request.page_token = page.next_page_token
