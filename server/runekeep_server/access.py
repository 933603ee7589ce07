"""Connects identity, limits and audit log with the server's life cycle."""

import structlog

from runekeep_server.app import Lifecycle
from runekeep_server.identity import Scope
from runekeep_server.identity.key_states import KeyStates
from runekeep_server.identity.key_uses import KeyUses
from runekeep_server.identity.modes import authenticator_of
from runekeep_server.rpc import CallParts
from runekeep_server.rpc.audit import Audit
from runekeep_server.rpc.limits import Limits
from runekeep_server.settings import Settings
from runekeep_storage.accounts import api_keys
from runekeep_storage.database import Database
from runekeep_storage.errors import DatabaseDamaged

_log = structlog.get_logger()


def open_access(settings: Settings, database: Database, limits: Limits, lifecycle: Lifecycle) -> KeyStates:
    """Makes calls pass through identity, limits and audit log. Returns the key cache, whose `forget` must be called
    when a key changes."""
    states = KeyStates(database, settings.key_check_seconds)
    uses = KeyUses(database)
    audit = Audit(database)
    lifecycle.calls = CallParts(authenticator_of(settings, states, uses), limits, audit)

    async def say_how_to_make_the_first_key() -> None:
        if settings.identity_mode != "keys" or settings.admin_key.get_secret_value():
            return
        try:
            has_one = await database.read_global(api_keys.has_one_of, Scope.ADMIN)
        except DatabaseDamaged:
            return
        if not has_one:
            _log.warning(
                "key_creation_impossible",
                what_to_do="start this server with RUNEKEEP_ADMIN_KEY, make a key of the scope admin with "
                "`runekeep admin key create --scope admin`, then start it without",
            )

    lifecycle.on_start(say_how_to_make_the_first_key)
    lifecycle.on_start(uses.start)
    lifecycle.on_close(uses.close)
    lifecycle.on_close(audit.close)
    return states
