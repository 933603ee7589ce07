"""Splits long conversations into pieces that fit one call each: runs of whole messages, none omitted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep.v1 import common_pb2
from runekeep_common.tokens import BYTES_A_TOKEN, count
from runekeep_extractor.prompts.transcript import INDENT, body, head

MAX_TOKENS: Final = 60_000
"""Maximum conversation in one call, as `tokens` counts. A window of 200,000 tokens then also fits the static prompt,
the shown memories (some 25,000), the results of earlier pieces, and the answer.
"""

MIN_TOKENS: Final = 1_000
"""Minimum piece size, even for a model with a small window."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`number` of `count`, from 1. `messages`: those shown in whole or in part; `lines`: their text in the prompt."""

    number: int
    count: int
    messages: tuple[common_pb2.Message, ...]
    lines: tuple[str, ...]


def tokens(text: str) -> int:
    """Returns the approximate number of tokens of a line, including its end; rather too many than too few."""
    return count(text) + 1


def size(messages: Sequence[common_pb2.Message]) -> int:
    """Returns the approximate number of tokens of all messages as shown."""
    return sum(tokens(line) for message in messages for line in (head(message), *body(message)))


def split(messages: Sequence[common_pb2.Message], most: int) -> list[Piece]:
    """Returns pieces of at most `most` tokens, in order; usually one piece.

    A larger message is shown in parts, each under its number and with a note of which part it is.
    """
    filled: list[tuple[list[common_pb2.Message], list[str]]] = [([], [])]
    room = most
    for message in messages:
        for lines in _parts(message, most):
            size = sum(map(tokens, lines))
            if size > room and filled[-1][1]:
                filled.append(([], []))
                room = most
            filled[-1][0].append(message)
            filled[-1][1].extend(lines)
            room -= size
    return [
        Piece(number, len(filled), tuple(shown), tuple(lines)) for number, (shown, lines) in enumerate(filled, start=1)
    ]


def _parts(message: common_pb2.Message, most: int) -> list[list[str]]:
    whole = [head(message), *body(message)]
    if sum(map(tokens, whole)) <= most:
        return [whole]
    # The number of parts is not known yet, so the note takes its maximum length.
    room = max(most - tokens(head(message, "999999 of 999999")), 1)
    chunks: list[list[str]] = [[]]
    left = room
    for line in _fitting(body(message), room):
        if tokens(line) > left and chunks[-1]:
            chunks.append([])
            left = room
        chunks[-1].append(line)
        left -= tokens(line)
    return [[head(message, f"{number} of {len(chunks)}"), *lines] for number, lines in enumerate(chunks, start=1)]


def _fitting(lines: Sequence[str], room: int) -> Iterator[str]:
    """Yields the lines, with lines longer than the room cut in several. Continuations are indented like any text."""
    most_bytes = max((room - 1) * BYTES_A_TOKEN, len(INDENT) + 4)
    for line in lines:
        rest = line
        while len(rest.encode(errors="replace")) > most_bytes:
            start = rest.encode(errors="replace")[:most_bytes].decode(errors="ignore")
            # Cuts between words if there is a space nearby.
            at = start.rfind(" ", len(start) // 2)
            cut = at if at > len(INDENT) else len(start)
            yield rest[:cut]
            rest = INDENT + rest[cut:].removeprefix(" ")
        yield rest
