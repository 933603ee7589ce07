"""Selects the implementation of the configured identity mode."""

from runekeep_server.identity.authenticator import Authenticator
from runekeep_server.identity.development import DevelopmentAuthenticator
from runekeep_server.identity.key_states import KeyStates
from runekeep_server.identity.key_uses import KeyUses
from runekeep_server.identity.keys import KeyAuthenticator
from runekeep_server.settings import Settings


def authenticator_of(settings: Settings, states: KeyStates, uses: KeyUses) -> Authenticator:
    """Returns the authenticator of the configured identity mode."""
    match settings.identity_mode:
        case "development":
            return DevelopmentAuthenticator()
        case "keys":
            return KeyAuthenticator(settings, states, uses)
        case "mesh":
            # Imported here, because the certificate library is slow to load.
            from runekeep_server.identity.mesh import MeshAuthenticator

            return MeshAuthenticator(settings.mesh)
