"""The status that the server gave a call with a stream of requests."""

from typing import Any

import grpc


def record_statuses(call: Any) -> list[grpc.aio.AioRpcError]:
    """Returns a list that gets each final status of the call, in order.

    If the server refuses a call while a message is on its way, grpc.aio sets two: the server's, and an INTERNAL of its
    own, which may replace the server's (grpc/grpc#36066).
    """
    statuses: list[grpc.aio.AioRpcError] = []

    def record(ended: Any) -> None:
        # A status has to be read before the next one replaces it, so not in a task. A call that has ended does not
        # make its readers wait.
        try:
            _read_status(ended).send(None)
        except StopIteration as read:
            statuses.append(read.value)

    call.add_done_callback(record)
    return statuses


async def _read_status(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
    )


def is_from_server(status: grpc.aio.AioRpcError) -> bool:
    """Returns whether a status is not grpc.aio's own, which has no trailer."""
    return status.code() is not grpc.StatusCode.INTERNAL or bool(status.trailing_metadata())
