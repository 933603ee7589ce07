"""Puts together what stands between a call and the services: who calls, how much, and what is written down of it."""

import structlog

from server.app import Lifecycle
from server.audit import Audit
from server.identity import Scope
from server.identity.key_states import KeyStates
from server.identity.key_uses import KeyUses
from server.identity.modes import authenticator_of
from server.interceptors import CallParts
from server.limits import Limits
from server.settings import Settings
from storage import api_keys
from storage.database import Database
from storage.errors import DatabaseDamaged

_log = structlog.get_logger()


def open_access(settings: Settings, database: Database, limits: Limits, lifecycle: Lifecycle) -> KeyStates:
    """Has calls pass through identity, limits and audit log. Returns what is to be told when a key is changed."""
    states = KeyStates(database, settings.key_check_seconds)
    uses = KeyUses(database)
    audit = Audit(database)
    lifecycle.calls = CallParts(authenticator_of(settings, states, uses), limits, audit)

    async def say_how_to_make_the_first_key() -> None:
        if settings.identity_mode != "keys" or settings.admin_key.get_secret_value():
            return
        try:
            has_one = await database.read(api_keys.has_one_of, Scope.ADMIN)
        except DatabaseDamaged:
            return
        if not has_one:
            _log.warning(
                "nobody can make keys",
                what_to_do="start this server with RUNEKEEP_ADMIN_KEY, make a key of the scope admin with "
                "`runekeep admin key create --scope admin`, then start it without",
            )

    lifecycle.on_start(say_how_to_make_the_first_key)
    lifecycle.on_start(uses.start)
    lifecycle.on_close(uses.close)
    lifecycle.on_close(audit.close)
    return states
