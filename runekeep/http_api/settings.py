"""What the HTTP server is started with."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from runekeep.web.listening import ListenError, Place


@dataclass(frozen=True, slots=True)
class HttpSettings(Place):
    """`server` is an address as the client takes it; None is the client's default."""

    server: str | None = None
    origins: tuple[str, ...] = ()
    """Origins whose web pages may call, such as `https://app.example.com`."""

    def check(self) -> None:
        """Raises ListenError for settings that cannot be used."""
        # Not super(): a dataclass with slots is another class than its methods know.
        Place.check(self)
        for origin in self.origins:
            parts = urlsplit(origin)
            if (
                parts.scheme not in ("http", "https")
                or not parts.netloc
                or origin != f"{parts.scheme}://{parts.netloc}"
            ):
                raise ListenError(f"--allow-origin {origin}: expected an origin, such as https://app.example.com")
