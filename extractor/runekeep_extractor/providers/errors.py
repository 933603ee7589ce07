"""Maps errors of model servers to failures of a job.

Error texts may quote the prompt, so only status, error type, error code and request id are passed on.
"""

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.providers.outage import MAX_WAIT, ServerAway, Unreachable

if TYPE_CHECKING:
    import httpx2

OUTAGES: Final = (contract.FAILURE_CLASS_RATE_LIMITED, contract.FAILURE_CLASS_MODEL_UNAVAILABLE)
"""Failures that give the job back uncounted; it starts again when the model is back."""

# How servers begin an error about a prompt that is too long. Only this beginning counts, not text that they may quote
# after it, because the error ends the job. In order: Anthropic; llama.cpp; Bedrock; OpenAI, vLLM and similar servers;
# vLLM, if the prompt leaves too little room for the answer.
_TOO_LONG: Final = re.compile(
    r"prompt is too long\b"
    r"|input length and `?max_tokens`? exceed context limit\b"
    r"|(the )?request (\(\d+ tokens\) )?exceeds the available context size\b"
    r"|input is too long for requested model\b"
    r"|this model's maximum context length is \d+\b"
    r"|'max_tokens' or 'max_completion_tokens' is too large: \d+\. this model's maximum context length is \d+\b"
)
_TOO_LONG_TYPES: Final = frozenset({"request_too_large", "exceed_context_size_error", "context_length_exceeded"})
# Text-only servers. llama.cpp: "image input is not supported - hint: ... you may need to provide the mmproj". OpenAI:
# "image_url is only supported by certain models". OpenRouter, with status 404: "no endpoints found that support image
# input".
_NO_IMAGES = re.compile(
    r"mmproj|multimodal|image input is not supported|not support (image|vision)"
    r"|image_url is only supported by|no endpoints found that support image"
)
# Some servers answer with an internal error if they were started without a feature.
_COMPLAINTS: Final = frozenset({400, 422, 500, 501})
# OpenRouter, with status 404, for a feature that no host of the model has. Only this beginning counts.
_NO_ENDPOINTS: Final = "no endpoints found that support"
_IDENTIFIER: Final = re.compile(r"[\w.-]{1,64}")
_CONTENT_FILTERS: Final = frozenset({"content_filter", "content_policy_violation"})
# Neither the job nor the server is at fault: this worker's key, payment or address is wrong until an operator fixes it.
# The jobs wait like in an outage, because a counted failure would drop commits for good over an expired key. They wait
# in the queue, where the reason is visible. OpenAI says by 429 that nothing is paid for.
_OPERATOR: Final[Mapping[int, str]] = {
    401: "refuses the credentials",
    402: "wants to be paid",
    429: "wants to be paid",
    403: "refuses the credentials for this",
    404: "does not know the address or the model",
}


@dataclass(eq=False)
class ServerError(Exception):
    """A model server answered with an error status.

    `message`: the server's own text, empty if it has another form than a text. `text`: everything that the error says,
    in lower case. Both are for matching only: never pass them on, and never rely on them alone. `parameter`: the
    parameter of the request that the error is about, if the server names it.
    """

    status: int
    type: str
    code: str
    parameter: str
    message: str
    text: str
    request_id: str
    headers: Mapping[str, str]

    def __str__(self) -> str:
        # A server may put any text into them.
        named = [one for one in (self.type, self.code) if _IDENTIFIER.fullmatch(one)]
        parts = [f"status {self.status}", *named, f"request {self.request_id}" if self.request_id else ""]
        return ", ".join(filter(None, parts))

    @property
    def subject(self) -> str:
        """The parameter that the server names, else the whole text, in lower case."""
        return self.parameter.lower() or self.text

    @property
    def no_endpoints(self) -> bool:
        """Returns whether no host of the model supports the request."""
        return self.status == 404 and self.message.strip().lower().startswith(_NO_ENDPOINTS)

    @property
    def may_name_feature(self) -> bool:
        """Returns whether it may be about a feature that the server lacks."""
        return self.status in _COMPLAINTS or self.no_endpoints


class NoAnswerInTime(Exception):
    """The server received the request and did not answer in time. Not an error of an SDK, which the SDK would retry by
    itself.
    """


class FeatureRefused(JobFailed):
    """A request was refused, probably because the server lacks the feature of that name."""

    def __init__(self, feature: str, message: str) -> None:
        super().__init__(contract.FAILURE_CLASS_INTERNAL, message)
        self.feature = feature


def too_large(detail: str) -> JobFailed:
    """The job does not fit into the model's context."""
    message = f"the conversation is too large for the model: {detail}"
    return JobFailed(contract.FAILURE_CLASS_INPUT_TOO_LARGE, message, retryable=False)


def refused(category: str | None) -> JobFailed:
    """The model refuses this conversation."""
    return JobFailed(
        contract.FAILURE_CLASS_MODEL_REFUSED,
        "the model refused" + (f" ({category})" if category else ""),
        retryable=False,
    )


def unusable(detail: str) -> JobFailed:
    """The model's answer cannot be used."""
    return JobFailed(contract.FAILURE_CLASS_INVALID_OUTPUT, f"the model's answer cannot be used: {detail}")


def not_the_api(name: str) -> JobFailed:
    """The response is not of the API of that name, for example a proxy's page: the address is wrong, not the model."""
    return JobFailed(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, f"the server's response is not of the {name}")


def not_in_time() -> ServerAway:
    """A call timed out before its answer."""
    return ServerAway(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, "the model server did not answer in time")


def too_slow() -> JobFailed:
    """A call timed out although the server answers others: the call takes too long, and would again. The attempt is
    counted, so that a slow model does not cost without end.
    """
    what = "the model took too long for its answer"
    return JobFailed(contract.FAILURE_CLASS_TIME_BUDGET, what)


def broke_off() -> JobFailed:
    """An answer broke off although the server answers others, for example because a proxy limits its time. The attempt
    is counted, so that such calls do not cost without end.
    """
    return JobFailed(contract.FAILURE_CLASS_TIME_BUDGET, "the model's answer broke off")


def unreachable() -> Unreachable:
    """Nothing answers at the server's address, or the connection broke."""
    return Unreachable(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, "the model server cannot be reached")


def no_credentials(error: Exception) -> JobFailed:
    """The SDK cannot load credentials from where the environment says."""
    return JobFailed(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, f"no credentials: {type(error).__name__}")


def failure_of(error: ServerError, *, images: bool) -> JobFailed:
    """Returns the failure for an error status that stays after the SDK's own retries. `images`: whether the request had
    images; only then can an error be about them.
    """
    status = error.status
    if status == 413 or (status == 400 and _says_too_long(error)):
        return too_large(str(error))
    if images and status in (400, 404, 422, 500, 501) and _NO_IMAGES.search(error.text):
        # Whatever the status, a retry will not help.
        return JobFailed(contract.FAILURE_CLASS_UNSUPPORTED, f"the model takes no images: {error}")
    if status == 400 and error.code in _CONTENT_FILTERS:
        return refused(error.code)
    if status == 429 and error.code != "insufficient_quota":
        return ServerAway(
            contract.FAILURE_CLASS_RATE_LIMITED,
            f"the model server limits the rate: {error}",
            retry_after=retry_after(error.headers),
        )
    if status in _OPERATOR and not error.no_endpoints:
        return JobFailed(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, f"the model server {_OPERATOR[status]}: {error}")
    if status >= 500 or status in (408, 409):
        return ServerAway(
            contract.FAILURE_CLASS_MODEL_UNAVAILABLE,
            f"the model server is down or overloaded: {error}",
            retry_after=retry_after(error.headers),
        )
    # The request itself is invalid. A few counted attempts are made, in case another worker is configured better.
    return JobFailed(contract.FAILURE_CLASS_INTERNAL, f"the model server refuses the request: {error}")


def _says_too_long(error: ServerError) -> bool:
    """Returns whether the error's type, or the beginning of its text, says that the prompt is too long."""
    if error.type in _TOO_LONG_TYPES or error.code in _TOO_LONG_TYPES:
        return True
    return _TOO_LONG.match(error.message.strip().lower()) is not None


MAX_ASKED: Final = 86_400.0
"""Seconds. A longer request than one day is not meant seriously."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that a response asks to wait, at most MAX_ASKED; None if it names no valid time."""
    asked = _asked(headers)
    return None if asked is None or math.isnan(asked) else min(max(asked, 0.0), MAX_ASKED)


def _asked(headers: Mapping[str, str]) -> float | None:
    """Reads any of the three forms in use."""
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


async def leave_long_waits(response: "httpx2.Response") -> None:
    """Keeps an SDK from sleeping as long as a server asks: that would hold the lease and use up the time budget. A hook
    for the responses of an SDK's HTTP client.
    """
    wait = retry_after(response.headers)
    if wait is not None and wait > MAX_WAIT:
        response.headers["x-should-retry"] = "false"
