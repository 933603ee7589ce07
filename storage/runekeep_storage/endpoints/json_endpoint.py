"""Client of an HTTP endpoint of a model: JSON there and back, with retries within a deadline.

Errors name the host and the status only: what an endpoint says may quote a text or the key.
"""

import asyncio
import email.utils
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential

T = TypeVar("T")

ATTEMPTS = 4
CONNECT_SECONDS = 5.0
_REFUSED = frozenset({400, 413, 422, 500})
"""Statuses by which endpoints refuse a text that is too long, or a batch that is too large. llama.cpp says 500."""
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_MEANINGS = {
    401: ": it refuses the key",
    402: ": it wants to be paid",
    403: ": it refuses the key",
    404: ": it does not know the address or the model",
}
_backoff = wait_random_exponential(multiplier=0.2, max=5)


class EndpointUnavailable(Exception):
    """The endpoint cannot answer now. `retry_after`: the seconds that it asks to wait, 0 if it does not say."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BatchRefused(EndpointUnavailable):
    """The endpoint refused these texts. It may accept fewer or shorter ones."""


class AnswerLate(EndpointUnavailable):
    """The endpoint took too long for these texts."""


class _Transient(EndpointUnavailable):
    """The same request may succeed in a moment."""


class BatchFailed(_Transient, BatchRefused):
    """The endpoint failed, perhaps because of these texts."""


class JsonEndpoint:
    """One URL and its connections, used on one event loop. `api_key`: sent as a bearer token; empty for none."""

    def __init__(self, url: str, api_key: str) -> None:
        self.host = urlsplit(url).hostname or url
        self._url = url
        headers = {"content-type": "application/json"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        # Only the connection has a timeout of its own; `post` bounds the whole call.
        self._http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS))

    async def post(self, body: Mapping[str, Any], read: Callable[[bytes], T], *, seconds: float) -> T:
        """Sends the body and returns what `read` makes of the answer. `read` runs in a thread, and raises
        EndpointUnavailable for an answer that cannot be right. Raises that too if the endpoint does not answer within
        `seconds`, retries included."""
        content = json.dumps(body).encode()
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(_Transient),
            stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(seconds),
            wait=_wait,
            reraise=True,
        )
        try:
            async with asyncio.timeout(seconds):
                answer: bytes = await attempts(self._post, content)
                # In a thread: an answer with vectors is up to megabytes of JSON.
                return await asyncio.to_thread(read, answer)
        except TimeoutError:
            raise AnswerLate(f"{self.host} did not answer within {seconds:g} s") from None

    async def close(self) -> None:
        await self._http.aclose()

    async def _post(self, content: bytes) -> bytes:
        try:
            response = await self._http.post(self._url, content=content)
        except httpx2.TransportError as error:
            raise _Transient(f"{self.host} cannot be reached: {type(error).__name__}") from error
        status = response.status_code
        if status == 200:
            return response.content
        message = f"{self.host} answered with status {status}{_MEANINGS.get(status, '')}"
        if status in _TRANSIENT:
            raise (BatchFailed if status in _REFUSED else _Transient)(message, _retry_after(response.headers))
        raise (BatchRefused if status in _REFUSED else EndpointUnavailable)(message)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, EndpointUnavailable) else 0.0
    return max(asked, _backoff(state))


def _retry_after(headers: Mapping[str, str]) -> float:
    """Returns the seconds that a response asks to wait, 0 if it does not say."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        date = email.utils.parsedate_tz(value)
        seconds = 0.0 if date is None else email.utils.mktime_tz(date) - time.time()
    # `nan` and `inf` are floats too.
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else 0.0
