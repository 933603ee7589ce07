"""What a studio is started with, and which of it would let strangers in."""

from dataclasses import dataclass

from runekeep.web.listening import ListenError, Place


@dataclass(frozen=True, slots=True)
class StudioSettings(Place):
    """`server` and `operator_server` are addresses as the client takes them; None is the client's default."""

    server: str | None = None
    own_credentials: bool = False
    """Act with the key or certificate of the environment, for whoever has the printed link."""
    operator: bool = False
    operator_server: str | None = None

    def check(self) -> None:
        """Raises ListenError for what would let strangers in."""
        # Not super(): a dataclass with slots is another class than its methods know.
        Place.check(self)
        if not self.local and self.own_credentials:
            raise ListenError("--own-credentials lends out your key, so it may only listen on a loopback address")
