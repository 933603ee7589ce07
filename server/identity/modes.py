"""The identity mode of the settings."""

from server.identity.authenticator import Authenticator
from server.identity.development import DevelopmentAuthenticator
from server.identity.key_states import KeyStates
from server.identity.key_uses import KeyUses
from server.identity.keys import KeyAuthenticator
from server.settings import Settings


def authenticator_of(settings: Settings, states: KeyStates, uses: KeyUses) -> Authenticator:
    """What knows callers in that mode."""
    match settings.identity_mode:
        case "development":
            return DevelopmentAuthenticator()
        case "keys":
            return KeyAuthenticator(settings, states, uses)
        case "mesh":
            # Here and not above: what reads certificates takes its time to load.
            from server.identity.mesh import MeshAuthenticator

            return MeshAuthenticator(settings.mesh)
