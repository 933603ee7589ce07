"""The mode keys: callers are known by an API key, `authorization: Bearer rk_...`.

Whoever has no good key learns nothing of it: a wrong, an unknown, an expired and a revoked one are refused in the same
words. Of a key only its id is ever logged, and only when its secret was right.
"""

from hmac import compare_digest

import structlog

from server.errors import ApiError, unauthenticated
from server.identity.authenticator import Context, Grant, principal_for
from server.identity.key_format import digest_of, parts_of
from server.identity.key_states import KeyStates
from server.identity.key_uses import KeyUses
from server.identity.metadata import Metadata, only_values
from server.identity.principals import Audience, Principal, Scope
from server.identity.traces import Trace
from server.settings import Settings
from storage.api_keys import KeyState
from storage.errors import StoreError

AUTHORIZATION_KEY = "authorization"
_SCHEME = "bearer "

_log = structlog.get_logger()


class KeyAuthenticator:
    """Knows the keys of the store and those of the settings."""

    def __init__(self, settings: Settings, states: KeyStates, uses: KeyUses) -> None:
        self._states = states
        self._uses = uses
        self._fixed = [
            (digest_of(key.get_secret_value()), Grant(scope, f"key:{scope}"))
            for scope, key in ((Scope.ADMIN, settings.admin_key), (Scope.WORKER, settings.worker_key))
            if key.get_secret_value()
        ]

    async def may_know(self, metadata: Metadata) -> bool:
        """Whether there is a good key in the metadata, or nobody can tell while the store is away."""
        try:
            await self._grant(_key_in(metadata))
        except ApiError:
            return False
        except Exception:
            # `authenticate` comes upon it too, and there it is told and logged.
            return True
        return True

    async def authenticate(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> Principal:
        """Whose key it is. See Authenticator. Raises StoreUnavailable when the key has to be read and cannot be."""
        return principal_for(await self._grant(_key_in(metadata), tell=True), audience, metadata, trace)

    async def until_refused(self, metadata: Metadata, context: Context, audience: Audience, trace: Trace) -> ApiError:
        """Returns at once when this server revokes the key, and at most `key_check_seconds` after another one did, or
        after it expired. While the store is away nothing is known of that."""
        parts = parts_of(_key_in(metadata))
        while True:
            # A key of the settings is none of the store's; it is looked at all the same, which finds it unchanged.
            changed = self._states.change_of(parts[0] if parts else "")
            try:
                # At once, for it may have been revoked since the stream was let in.
                await self.authenticate(metadata, context, audience, trace)
            except ApiError as error:
                return error
            except StoreError as error:
                _log.warning("key_not_checked", error=str(error))
            except Exception:
                # Were it to end here, the stream would outlast its key.
                _log.exception("key_not_checked")
            await self._states.wait(changed)

    async def _grant(self, text: str, *, tell: bool = False) -> Grant:
        """`tell`: in the log, of a key that has ended."""
        # Compared by their hashes, so that the time it takes says nothing, not even of a length.
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
