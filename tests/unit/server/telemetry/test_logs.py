"""Log lines: one event each, and never the text of an exception."""

import asyncio
import io
import json
import logging
import sqlite3
import struct
from collections.abc import Iterator
from typing import Any, cast

import grpc
import pytest
import structlog

from runekeep_server.settings import Settings
from runekeep_server.telemetry import logs

SECRET = "my secret words"


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.contextvars.clear_contextvars()
    root.handlers[:], root.level = handlers, level


def describe(error: BaseException) -> str:
    return logs.describe_exception((type(error), error, error.__traceback__))


def raised() -> Exception:
    try:
        try:
            json.loads(SECRET)
        except ValueError as cause:
            raise LookupError("no place for " + SECRET) from cause
    except LookupError as error:
        return error


def test_exception_is_told_without_its_text() -> None:
    text = describe(raised())
    assert SECRET not in text
    assert text.index("json.decoder.JSONDecodeError") < text.index("builtins.LookupError")
    assert ", in raised" in text


def test_members_of_a_group_and_circles_of_causes_are_told_once() -> None:
    inner = raised()
    group = ExceptionGroup(SECRET, [inner, KeyError(SECRET)])
    assert inner.__cause__ is not None
    inner.__cause__.__cause__ = group
    text = describe(group)
    assert SECRET not in text
    assert text.count("LookupError\n") == 1
    assert "  builtins.KeyError" in text


def test_faults_of_the_system_keep_their_name() -> None:
    assert "[Errno 28] No space left on device" in describe(OSError(28, "No space left on device", SECRET))
    try:
        sqlite3.connect(":memory:").execute("CREATE TABLE t (x UNIQUE)").execute(f"SELECT '{SECRET}' FROM nowhere")
    except sqlite3.OperationalError as error:
        text = describe(error)
    assert "SQLITE_ERROR" in text
    assert SECRET not in text.replace("SELECT '{SECRET}'", "")


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """Of HTTP/2, as RFC 9113, 4.1 has it."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


async def test_a_header_that_is_no_text_is_not_quoted() -> None:
    """gRPC does so on its own, of the first caller who comes, before anybody has asked who it is."""

    async def serve(request: bytes, context: object) -> bytes:
        heard.append(dict(cast(Any, context).invocation_metadata()))
        return b""

    heard: list[dict[str, str]] = []
    stream = io.StringIO()
    logs.configure(Settings(), stream)
    server = grpc.aio.server()
    methods = {"Call": grpc.unary_unary_rpc_method_handler(cast(Any, serve))}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.Service", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    headers = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/a.Service/Call"),
        (b":authority", b"a"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"authorization", b"Bearer " + SECRET.encode() + b"\xff"),
    ]
    # Literals of RFC 7541, 6.2.2.
    block = b"".join(bytes([0, len(name)]) + name + bytes([len(value)]) + value for name, value in headers)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    writer.write(preface + frame(4, 0, 0, b"") + frame(1, 4, 1, block) + frame(0, 1, 1, bytes(5)))
    async with asyncio.timeout(20):
        while b"grpc-status" not in await reader.read(65536):
            pass
    writer.close()
    await server.stop(None)
    assert SECRET in heard[0]["authorization"], "it comes through, and what comes of the call is logged by others"
    assert stream.getvalue() == ""


def test_lines_are_json_with_what_is_known_of_their_call() -> None:
    stream = io.StringIO()
    logs.configure(Settings(), stream)
    logs.begin_call("SessionService/FindSession")["user"] = "of-the-call-before"
    known = logs.begin_call("SessionService/GetSession")
    known["task"] = "t-1"
    structlog.get_logger().info("applied", revision=3)
    structlog.get_logger().debug("not shown")
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "applied", "level": "info", "revision": 3, "rpc": "SessionService/GetSession", "task": "t-1"
    }  # fmt: skip


def test_libraries_are_logged_the_same_way_from_warnings_on() -> None:
    stream = io.StringIO()
    logs.configure(Settings(log_level="debug"), stream)
    logging.getLogger("library").info("not shown")
    try:
        raise raised()
    except LookupError:
        logging.getLogger("library").exception("it %s", "broke")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"], line["level"]) == ("it broke", "library", "error")
    assert "LookupError" in line["exception"]
    assert SECRET not in stream.getvalue()


def test_console_format_is_for_people() -> None:
    stream = io.StringIO()
    logs.configure(Settings(log_format="console"), stream)
    try:
        raise raised()
    except LookupError as error:
        structlog.get_logger().error("call", exc_info=error)
    text = stream.getvalue()
    assert "call" in text.splitlines()[0]
    assert "builtins.LookupError" in text
    assert SECRET not in text
    assert "\x1b[" not in text
