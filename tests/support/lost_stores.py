"""Helpers of tests of lost stores: what they store, read and search for."""

import json
import re
from pathlib import Path
from typing import Any

import grpc

from runekeep.v1 import session_service_pb2
from runekeep_storage.drivers.common.mark_file import read_mark
from tests.support.callers import Caller, said, used_tool
from tests.support.keys import Operator
from tests.support.server_process import ServerProcess

LOST = "the store vanished, went back in time, or is another one"
_LARGE = "a large output " * 2_000


async def talk(server: ServerProcess, *texts: str) -> None:
    """Appends the messages in one session, each with a tool output that becomes a blob."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        anna = Caller(channel, "anna")
        try:
            await anna.session(session_id="s")
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.ALREADY_EXISTS:
                raise
        for text in texts:
            await anna.add("s", said(text), used_tool(f"call-{text}", _LARGE))


async def texts(server: ServerProcess) -> list[str]:
    """Returns all messages of `talk` that are stored."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        request = session_service_pb2.ListMessagesRequest(
            session="s", scope=session_service_pb2.MESSAGE_SCOPE_ALL, page_size=100
        )
        page = await Caller(channel, "anna").sessions.ListMessages(request)
    return [message.parts[0].text.text for message in page.messages if message.parts[0].HasField("text")]


def mark(directory: Path) -> dict[str, Any]:
    """Returns the mark; empty if there is none."""
    found: dict[str, Any] = json.loads(read_mark(directory) or "{}")
    return found


def code_in(refusal: str) -> str:
    """Returns the code that accepts the loss."""
    found = re.search(r"--accept-data-loss ([0-9a-f]{12})", refusal)
    assert found is not None, refusal
    return found[1]


async def accepted_losses(server: ServerProcess) -> list[str]:
    """Returns the subjects in the audit log."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        events = (await Operator(channel).events()).events
    return [event.subject for event in events if (event.method, event.code) == ("Server/AcceptDataLoss", "OK")]
