"""When a line of the log is written."""

import asyncio
import io
import subprocess
import sys
import threading

import pytest

from runekeep_server.telemetry.log_writer import BYTES_A_WRITE, Lines


class Stream(io.StringIO):
    """Keeps what was written at once apart."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def lines(stream: Stream) -> Lines:
    return Lines(stream)


async def test_what_one_turn_of_the_loop_says_is_written_together_at_its_end(stream: Stream, lines: Lines) -> None:
    lines.info("a")
    lines.debug("b")
    assert stream.writes == []

    await asyncio.sleep(0)

    assert stream.writes == ["a\nb\n"]
    lines.info("c")
    await asyncio.sleep(0)
    assert stream.writes == ["a\nb\n", "c\n"]


async def test_a_warning_is_written_at_once_behind_what_waits(stream: Stream, lines: Lines) -> None:
    lines.info("a")
    lines.warning("b")

    assert stream.writes == ["a\nb\n"]
    lines.info("c")
    lines.write("of a library\n")
    assert stream.writes == ["a\nb\n", "c\nof a library\n"]


@pytest.mark.parametrize("letter", ["a", "é", "語"])
async def test_many_are_written_in_pieces_of_whole_lines(stream: Stream, lines: Lines, letter: str) -> None:
    said = [f"{number:03}{letter * 200}" for number in range(30)]
    for one in said:
        lines.info(one)

    await asyncio.sleep(0)

    assert "".join(stream.writes) == "".join(f"{one}\n" for one in said)
    sizes = [len(text.encode()) for text in stream.writes]
    line = len(said[0].encode()) + 1
    assert all(size <= BYTES_A_WRITE and size % line == 0 for size in sizes)
    assert all(size + line > BYTES_A_WRITE for size in sizes[:-1]), "as many as fit"


async def test_a_line_that_is_too_long_is_written_by_itself(stream: Stream, lines: Lines) -> None:
    long = "x" * BYTES_A_WRITE
    for one in ("a", long, "b", long[1:], "c"):
        lines.info(one)

    await asyncio.sleep(0)

    assert stream.writes == ["a\n", f"{long}\n", "b\n", f"{long[1:]}\n", "c\n"]


class Refusing(Stream):
    """Has no room for what begins with one of these letters."""

    refused = ""

    def write(self, text: str) -> int:
        if text[0] in self.refused:
            raise OSError(28, "No space left on device", text[0])
        return super().write(text)


def test_a_write_that_is_refused_takes_no_others_with_it() -> None:
    stream = Refusing()
    lines = Lines(stream)
    stream.refused = "bd"

    async def say() -> None:
        for letter in "abcde":
            lines.info(letter * BYTES_A_WRITE)
        lines.flush()

    with pytest.raises(OSError) as caught:
        asyncio.run(say())
    assert caught.value.filename == "d"
    assert [text[0] for text in stream.writes] == ["a", "c", "e"]
    lines.flush()
    assert len(stream.writes) == 3, "nothing waits any more"


def test_of_several_configurations_the_last_one_holds_at_the_end_of_the_process() -> None:
    program = """
import asyncio, atexit, sys
from runekeep_server.telemetry import logs
from runekeep_server.settings import load_settings
import structlog

settings = load_settings(None, {})
logs.configure(settings, sys.stdout)
hooks = atexit._ncallbacks()
for _ in range(20):
    logs.configure(settings, sys.stdout)
assert atexit._ncallbacks() == hooks

def say():
    structlog.get_logger().info("first")
    logs.configure(settings, sys.stderr)
    structlog.get_logger().info("second")
    loop.stop()

# Its next turn, which would write what waits, never comes.
loop = asyncio.new_event_loop()
loop.call_soon(say)
loop.run_forever()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.count("first") == 1 and ended.stderr.count("second") == 1


def test_without_a_loop_a_line_is_written_at_once(stream: Stream, lines: Lines) -> None:
    lines.info("a")

    assert stream.writes == ["a\n"]


def test_the_last_turn_of_a_loop_and_the_first_of_the_next_are_written(stream: Stream, lines: Lines) -> None:
    async def say(line: str) -> None:
        lines.info(line)

    asyncio.run(say("a"))
    assert stream.writes == ["a\n"]
    abandoned = asyncio.new_event_loop()
    abandoned.call_soon(lines.info, "b")
    abandoned.call_soon(abandoned.stop)
    abandoned.run_forever()
    abandoned.close()

    # The loop that was to write the second one never will.
    asyncio.run(say("c"))

    assert "".join(stream.writes) == "a\nb\nc\n"


async def test_threads_lose_none_of_each_others_lines(stream: Stream, lines: Lines) -> None:
    threads = [threading.Thread(target=lambda: [lines.info("t") for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        lines.info("l")
        await asyncio.sleep(0)
    lines.flush()

    assert "".join(stream.writes).split().count("t") == 2000
    assert set("".join(stream.writes).split()) <= {"t", "l"}
