"""The mode keys: an API key in `authorization: Bearer rk_...` identifies the caller.

A wrong, an unknown, an expired and a revoked key get the same answer, so that a caller without a valid key learns
nothing. Logs contain only key ids, and only after the secret matched.
"""

from hmac import compare_digest

import structlog

from runekeep_server.identity.authenticator import Context, Grant, principal_for
from runekeep_server.identity.key_format import digest_of, parts_of
from runekeep_server.identity.key_states import KeyStates
from runekeep_server.identity.key_uses import KeyUses
from runekeep_server.identity.metadata import Metadata, only_values
from runekeep_server.identity.principals import Audience, Principal, Scope
from runekeep_server.identity.traces import Trace
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import unauthenticated
from runekeep_server.settings import Settings
from runekeep_storage.accounts.api_keys import KeyState
from runekeep_storage.errors import StoreError

AUTHORIZATION_KEY = "authorization"
_SCHEME = "bearer "

_log = structlog.get_logger()


class KeyAuthenticator:
    """Checks keys of the store and keys of the settings."""

    def __init__(self, settings: Settings, states: KeyStates, uses: KeyUses) -> None:
        self._states = states
        self._uses = uses
        self._fixed = [
            (digest_of(key.get_secret_value()), Grant(scope, f"key:{scope}"))
            for scope, key in ((Scope.ADMIN, settings.admin_key), (Scope.WORKER, settings.worker_key))
            if key.get_secret_value()
        ]

    async def may_know(self, metadata: Metadata) -> bool:
        """Returns whether the metadata contains a valid key. Returns True if the store is unavailable, so that nobody
        can tell."""
        try:
            await self._grant(_key_in(metadata))
        except ApiError:
            return False
        except Exception:
            # `authenticate` meets the same error, and reports and logs it.
            return True
        return True

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        """Returns the principal of the key, see Authenticator. Raises StoreUnavailable if the key must be read and the
        store is unavailable."""
        return principal_for(await self._grant(_key_in(metadata), tell=True), audience, metadata, trace)

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        """Returns at once when this server revokes the key, and at most `key_check_seconds` after another server
        revoked it or it expired. While the store is unavailable, neither is noticed."""
        parts = parts_of(_key_in(metadata))
        while True:
            # A key of the settings is not in the store. The check runs all the same and finds it unchanged.
            changed = self._states.change_of(parts[0] if parts else "")
            try:
                # Checked at once, because the key may have been revoked since the stream was opened.
                await self.authenticate(metadata, context, audience, trace)
            except ApiError as error:
                return error
            except StoreError as error:
                _log.warning("key_not_checked", error=str(error))
            except Exception:
                # If the loop ended here, the stream would outlive its key.
                _log.exception("key_not_checked")
            await self._states.wait(changed)

    async def _grant(self, text: str, *, tell: bool = False) -> Grant:
        """Returns the grant of the key `text`. `tell`: log the use of an expired or revoked key."""
        # Compares hashes, so that the time reveals nothing about the key, not even its length.
        whole = digest_of(text)
        for digest, grant in self._fixed:
            if compare_digest(digest, whole):
                return grant
        parts = parts_of(text)
        if parts is None:
            raise _not_valid()
        key_id, digest = parts
        state, now = await self._states.get(key_id)
        if state is not None and not _is_its_secret(state, digest, now):
            state, now = await self._states.get_in_doubt(key_id)
        if state is None or not _is_its_secret(state, digest, now):
            raise _not_valid()
        if state.revoked_at or 0 < state.expires_at <= now:
            if tell:
                _log.warning("key_ended", key_id=key_id, revoked=bool(state.revoked_at))
            raise _not_valid()
        self._uses.note(key_id, state.used_at, now)
        return Grant(Scope(state.scope), f"key:{key_id}", state.account, state.user, state.accounts)


def _is_its_secret(state: KeyState, digest: str, now: int) -> bool:
    if compare_digest(state.digest, digest):
        return True
    return now < state.previous_until and compare_digest(state.previous_digest, digest)


def _key_in(metadata: Metadata) -> str:
    value = only_values(metadata, (AUTHORIZATION_KEY,)).get(AUTHORIZATION_KEY, "")
    if value[: len(_SCHEME)].lower() != _SCHEME:
        raise unauthenticated("The call carries no API key", f"Send one as `{AUTHORIZATION_KEY}: Bearer ...`.")
    return value[len(_SCHEME) :].strip()


def _not_valid() -> ApiError:
    return unauthenticated(
        "The API key is not valid", "Call with one that is; operators make them with `runekeep admin key create`."
    )
