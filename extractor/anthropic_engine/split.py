"""Long conversations in pieces that a model takes in one call each: runs of whole messages, none left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extractor.anthropic_engine.transcript import INDENT, body, head
from runekeep.v1 import common_pb2
from schemas.tokens import BYTES_A_TOKEN, count

MOST_TOKENS: Final = 60_000
"""Of conversation in one call, as `tokens` counts them. A window of 200,000 tokens then has room for the static prompt,
the memories that are shown (some 25,000), what earlier pieces gave, and the answer."""

LEAST_TOKENS: Final = 1_000
"""Pieces are made no smaller than that for a model that takes little."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`number` of `count`, from 1. `messages`: those that it shows in whole or in part; `lines`: as they are shown."""

    number: int
    count: int
    messages: tuple[common_pb2.Message, ...]
    lines: tuple[str, ...]


def tokens(text: str) -> int:
    """About how many tokens a line is, its end included; rather too many than too few."""
    return count(text) + 1


def size(messages: Sequence[common_pb2.Message]) -> int:
    """About how many tokens all of them are, as they are shown."""
    return sum(tokens(line) for message in messages for line in (head(message), *body(message)))


def split(messages: Sequence[common_pb2.Message], most: int) -> list[Piece]:
    """Pieces of at most `most` tokens, in order; one piece in the usual case.

    A message that is larger than that is shown in parts, each under its number and with a note of which part it is.
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
    # The note takes its place before it is known how many parts there are.
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
    """The lines, those that are longer than the room cut in several. What goes on is indented like any text."""
    most_bytes = max((room - 1) * BYTES_A_TOKEN, len(INDENT) + 4)
    for line in lines:
        rest = line
        while len(rest.encode(errors="replace")) > most_bytes:
            start = rest.encode(errors="replace")[:most_bytes].decode(errors="ignore")
            # Between words where there are any nearby.
            at = start.rfind(" ", len(start) // 2)
            cut = at if at > len(INDENT) else len(start)
            yield rest[:cut]
            rest = INDENT + rest[cut:].removeprefix(" ")
        yield rest
