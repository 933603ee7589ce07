"""Settings of the HTTP server."""

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
            if not _is_origin(origin):
                raise ListenError(
                    f"--allow-origin {origin}: expected an origin as browsers send it, like https://app.example.com, "
                    "in lower case, without a path, and without the usual port of its scheme"
                )


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        usual = {"http": 80, "https": 443}[parts.scheme]
        return text == f"{parts.scheme}://{parts.netloc}".lower() and parts.port != usual and not set("@*") & set(text)
    except (KeyError, ValueError):
        return False
