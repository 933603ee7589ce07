"""What a proxy is started with."""

from dataclasses import dataclass

import httpx2

from runekeep.web.callers import CallerPlace
from runekeep.web.listening import ListenError


@dataclass(frozen=True, slots=True)
class ProxySettings(CallerPlace):
    """`upstream`: the URL below which the model's API lies, such as `https://api.openai.com`."""

    upstream: str = ""
    stable_budget: int = 500
    query_budget: int = 1000
    """Maximum tokens of what is added: of the profile, preferences and plans, and of what is relevant to the query."""

    def check(self) -> None:
        """Raises ListenError for settings that cannot be used."""
        # Not super(): a dataclass with slots is another class than its methods know.
        CallerPlace.check(self)
        try:
            url = httpx2.URL(self.upstream)
        except httpx2.InvalidURL:
            url = httpx2.URL()
        if url.scheme not in ("http", "https") or not url.host:
            raise ListenError(f"--upstream {self.upstream}: expected a URL, such as https://api.openai.com")
