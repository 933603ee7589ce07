"""Types of values that results of several subjects hold."""

from runekeep.client.wire.result import Result

Scalar = str | int | float | bool


class Extractor(Result):
    """`engine`: `offline`, `anthropic` or `openai`; `caller`, `rollback` or `erasure` for what no extractor made."""

    engine: str
    model: str
    version: str


class MessageRange(Result):
    """Messages of a session by position, both included."""

    start_sequence: int
    end_sequence: int
