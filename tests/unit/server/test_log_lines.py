"""When a line of the log is written."""

import asyncio
import io
import threading

import pytest

from server.log_lines import LINES_A_WRITE, Lines


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


async def test_many_are_written_in_pieces_of_whole_lines(stream: Stream, lines: Lines) -> None:
    said = [str(number) for number in range(2 * LINES_A_WRITE + 1)]
    for one in said:
        lines.info(one)

    await asyncio.sleep(0)

    assert [text.count("\n") for text in stream.writes] == [LINES_A_WRITE, LINES_A_WRITE, 1]
    assert "".join(stream.writes).split() == said


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
