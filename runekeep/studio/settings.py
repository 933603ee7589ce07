"""What a studio is started with, and which of it would let strangers in."""

from dataclasses import dataclass

from runekeep.web.listening import ListenError as SettingsError
from runekeep.web.listening import Place

__all__ = ["SettingsError", "StudioSettings"]


@dataclass(frozen=True, slots=True)
class StudioSettings(Place):
    """`server` and `operator_server` are addresses as the client takes them; None is the client's default."""

    server: str | None = None
    names: tuple[str, ...] = ()
    """Host names by which browsers may call, beside loopback names and `host`."""
    own_credentials: bool = False
    """Act with the key or certificate of the environment, for whoever has the printed link."""
    operator: bool = False
    operator_server: str | None = None

    def check(self) -> None:
        """Raises SettingsError for what would let strangers in."""
        # Not super(): a dataclass with slots is another class than its methods know.
        Place.check(self)
        if not self.local and self.own_credentials:
            raise SettingsError("--own-credentials lends out your key, so it may only listen on a loopback address")
