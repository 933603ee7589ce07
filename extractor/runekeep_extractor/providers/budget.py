"""Keeps an attempt within its token budget: before each call, the call's maximum cost is checked against it."""

from collections.abc import Collection
from typing import Final

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import Job, JobFailed
from runekeep_extractor.providers.interface import Image

MIN_ANSWER: Final = 1024
"""Tokens. A call with less room for its answer is not worth its input."""
IMAGE_TOKENS: Final = 5_000
"""An upper bound for one image: providers scale large ones down, Anthropic's newest models to less than that."""

# Tokens that servers add to describe the tools and the form of the answer.
_UNSEEN: Final = 1024


def remaining_tokens(job: Job) -> int | None:
    """Returns the tokens that the attempt may still spend; None means no limit."""
    if not job.assignment.HasField("token_budget"):
        return None
    return job.assignment.token_budget - sum(map(total, job.spent))


def total(usage: common_pb2.TokenUsage) -> int:
    """Returns the tokens of an entry. Cache tokens count in full."""
    read = usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens
    return read + usage.output_tokens


def max_input_tokens(written: bytes, images: Collection[Image]) -> int:
    """Returns an upper bound of a request's prompt tokens for any byte-level tokenizer: one per byte of `written`, its
    UTF-8 JSON.

    English has about a fourth of that. So a server that counts tokens is asked before a call is refused over this
    bound.
    """
    pixels = sum(len(image.data) for image in images)
    return len(written) - pixels + len(images) * IMAGE_TOKENS + _UNSEEN


def answer_room(max_tokens: int, input_tokens: int, remaining: int) -> int:
    """Returns the tokens for the answer, at most `max_tokens`. Raises JobFailed if too few remain to make the call."""
    room = remaining - input_tokens
    min_room = min(max_tokens, MIN_ANSWER)
    if room < min_room:
        raise JobFailed(
            contract.FAILURE_CLASS_OUT_OF_BUDGET,
            f"the next call of the model may take {input_tokens} tokens of input and needs {min_room} "
            f"for its answer; of a budget of tokens {max(remaining, 0)} are left",
            retryable=False,
        )
    return min(max_tokens, room)
