"""Keeps an attempt within the tokens that it may spend: what a call may cost at most is held against them before it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from extractor.engine import Job, JobFailed
from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as contract

LEAST_ANSWER: Final = 1024
"""Tokens. A call with less room for its answer is not worth its input."""
IMAGE_TOKENS: Final = 5_000
"""More than one image costs: providers scale large ones down, Anthropic's newest models to less than that."""

# What servers add of their own to tell a model of its tools and of the form of its answer.
_UNSEEN: Final = 1024


def left(job: Job) -> int | None:
    """Tokens that the attempt may still spend; None: any number."""
    if not job.assignment.HasField("token_budget"):
        return None
    return job.assignment.token_budget - sum(map(total, job.spent))


def total(usage: common_pb2.TokenUsage) -> int:
    """Tokens of an entry. Those of the cache count in full."""
    read = usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens
    return read + usage.output_tokens


def most_input(request: Mapping[str, Any], written: bytes) -> int:
    """More tokens than the prompt of a request has, by any byte-level tokenizer: one for each byte of its UTF-8 JSON,
    which is `written`.

    English has about a fourth of that; a server that counts tokens is asked before a call is refused over this.
    """
    images = [source for block in _blocks(request) if isinstance(source := block.get("source"), Mapping)]
    pixels = sum(len(source.get("data", "")) for source in images)
    return len(written) - pixels + len(images) * IMAGE_TOKENS + _UNSEEN


def has_images(request: Mapping[str, Any]) -> bool:
    """Whether the model is to look at anything."""
    return any(block.get("type") == "image" for block in _blocks(request))


def answer_room(most: int, input_tokens: int, tokens_left: int) -> int:
    """Tokens for the answer, at most `most`. Raises JobFailed where so few are left that the call must not be made."""
    room = tokens_left - input_tokens
    if room < min(most, LEAST_ANSWER):
        raise JobFailed(
            contract.FAILURE_CLASS_OUT_OF_BUDGET,
            f"the next call of the model may take {input_tokens} tokens of input and needs {min(most, LEAST_ANSWER)} "
            f"for its answer; of a budget of tokens {max(tokens_left, 0)} are left",
            retryable=False,
        )
    return min(most, room)


def _blocks(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for message in request["messages"]:
        content = message["content"]
        yield from (block for block in content if isinstance(block, Mapping)) if isinstance(content, list) else ()
