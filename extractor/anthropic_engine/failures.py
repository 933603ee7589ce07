"""What the errors of the Messages API mean for a job.

Their texts may quote the prompt, so only status, error type, error code and request id are passed on.
"""

import email.utils
import math
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from extractor.anthropic_engine.outage import ServerAway, Unreachable
from extractor.engine import JobFailed
from runekeep.v1 import extractor_service_pb2 as contract

if TYPE_CHECKING:
    from anthropic import AnthropicError, APIStatusError

OUTAGES: Final = (contract.FAILURE_CLASS_RATE_LIMITED, contract.FAILURE_CLASS_MODEL_UNAVAILABLE)
"""The job is given back over these, uncounted, and everything is done when the model is there again."""

# How servers begin to say that a prompt is too long. Only their own words count, not what they may quote after them: a
# job ends over this. In order: Anthropic; llama.cpp; Bedrock; vLLM and its kin.
_TOO_LONG: Final = re.compile(
    r"prompt is too long\b"
    r"|input length and `?max_tokens`? exceed context limit\b"
    r"|(the )?request (\(\d+ tokens\) )?exceeds the available context size\b"
    r"|input is too long for requested model\b"
    r"|this model's maximum context length is \d+\b"
)
_TOO_LONG_TYPES: Final = frozenset({"request_too_large", "exceed_context_size_error", "context_length_exceeded"})
# Text-only servers: "image input is not supported - hint: ... you may need to provide the mmproj".
_NO_IMAGES = re.compile(r"mmproj|multimodal|image input is not supported|not support (image|vision)")
# Neither the job's fault nor the server's: this worker's key, bill or address is wrong until somebody mends it. They
# wait like an outage, because a counted failure would give up commits for good over a key that has just expired; but
# in the queue, where everybody sees why.
_OPERATOR: Final[Mapping[int, str]] = {
    401: "refuses the credentials",
    402: "wants to be paid",
    403: "refuses the credentials for this",
    404: "does not know the address or the model",
}


class FeatureRefused(JobFailed):
    """A request was refused, it seems over a feature that the server may lack. `key`: what asks for it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(contract.FAILURE_CLASS_INTERNAL, message)
        self.key = key


def too_large(detail: str) -> JobFailed:
    """The job does not fit into the model."""
    message = f"the conversation is too large for the model: {detail}"
    return JobFailed(contract.FAILURE_CLASS_INPUT_TOO_LARGE, message, retryable=False)


def refused(category: str | None) -> JobFailed:
    """The model will not work on this conversation."""
    return JobFailed(
        contract.FAILURE_CLASS_MODEL_REFUSED,
        "the model refused" + (f" ({category})" if category else ""),
        retryable=False,
    )


def unusable(detail: str) -> JobFailed:
    """The model answered, but not so that anything can be made of it."""
    return JobFailed(contract.FAILURE_CLASS_INVALID_OUTPUT, f"the model's answer cannot be used: {detail}")


def not_the_api() -> JobFailed:
    """Something answered that is no Messages API, for example a proxy's page: an address to mend, no model's fault."""
    return JobFailed(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, "the server's response is not of the Messages API")


def not_in_time() -> ServerAway:
    """A call was given up before its answer came."""
    return ServerAway(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, "the model server did not answer in time")


def from_sdk_error(error: "AnthropicError", *, images: bool) -> JobFailed:
    """The failure that an error of the SDK stands for, once its own retries are used up. `images`: whether the request
    had any, for only then a complaint can be about them.
    """
    from anthropic import APIConnectionError, APIError, APIStatusError, APITimeoutError

    if isinstance(error, APITimeoutError):
        return not_in_time()
    if isinstance(error, APIConnectionError):
        return Unreachable(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, "the model server cannot be reached")
    if isinstance(error, APIStatusError):
        return _from_status(error, images)
    if isinstance(error, APIError):
        return not_the_api()
    # What is left are credentials that the SDK could not load from where the environment says they are.
    return JobFailed(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, f"no credentials: {type(error).__name__}")


def _from_status(error: "APIStatusError", images: bool) -> JobFailed:
    status = error.status_code
    named = _named(error)
    if status == 413 or (status == 400 and _says_too_long(error)):
        return too_large(named)
    if images and status in (400, 422, 500, 501) and _NO_IMAGES.search(text_of(error)):
        # Whatever the status says: it will not pass by itself.
        return JobFailed(contract.FAILURE_CLASS_UNSUPPORTED, f"the model takes no images: {named}")
    if status == 429:
        return ServerAway(
            contract.FAILURE_CLASS_RATE_LIMITED,
            f"the model server limits the rate: {named}",
            retry_after=retry_after(error.response.headers),
        )
    if status in _OPERATOR:
        return JobFailed(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, f"the model server {_OPERATOR[status]}: {named}")
    if status >= 500 or status in (408, 409):
        return ServerAway(
            contract.FAILURE_CLASS_MODEL_UNAVAILABLE,
            f"the model server is down or overloaded: {named}",
            retry_after=retry_after(error.response.headers),
        )
    # The request itself is at fault. A few counted attempts are made, in case another worker is set up better.
    return JobFailed(contract.FAILURE_CLASS_INTERNAL, f"the model server refuses the request: {named}")


def _says_too_long(error: "APIStatusError") -> bool:
    """Whether the error's type says so, or its text from its beginning on."""
    named: tuple[object, ...] = (error.type, error.error_code)
    if any(isinstance(one, str) and one in _TOO_LONG_TYPES for one in named):
        return True
    text: object = error.api_message
    return isinstance(text, str) and _TOO_LONG.match(text.strip().lower()) is not None


def text_of(error: "APIStatusError") -> str:
    """The error's own words in lower case, to look into; never to be passed on, and never believed alone."""
    return f"{error.api_message or ''} {error.message}".lower()


def subject_of(error: "APIStatusError") -> str:
    """What an error is about, in lower case: the parameter where the server names one, else all of its words."""
    body = error.body if isinstance(error.body, Mapping) else {}
    told = body.get("error")
    parameter = told.get("param") if isinstance(told, Mapping) else None
    return parameter.lower() if isinstance(parameter, str) and parameter else text_of(error)


LONGEST_ASKED: Final = 86_400.0
"""Seconds; a server that asks for more than a day is not meant."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, at most LONGEST_ASKED; None when it asks for nothing that is a time."""
    asked = _asked(headers)
    return None if asked is None or math.isnan(asked) else min(max(asked, 0.0), LONGEST_ASKED)


def _asked(headers: Mapping[str, str]) -> float | None:
    """In any of the three forms in use."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return float(value) * unit
        except ValueError:
            date = email.utils.parsedate_tz(value)
            if date is not None:
                return email.utils.mktime_tz(date) - time.time()
    return None


def _named(error: "APIStatusError") -> str:
    parts = [f"status {error.status_code}"]
    parts += [str(part) for part in (error.type, error.error_code) if part]
    if error.request_id:
        parts.append(f"request {error.request_id}")
    return ", ".join(parts)
