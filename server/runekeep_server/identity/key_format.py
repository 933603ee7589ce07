"""The format of API keys: `rk_{key_id}_{secret}`.

The id is public. The secret is 32 random bytes. Nobody who reads the store can guess it, so one SHA-256 is enough; a
slow hash would only slow down every call.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass

_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH = 16
_SECRET_BYTES = 32

# 32 bytes are 43 characters of URL-safe base64, which itself may hold `_`.
_KEY = re.compile(rf"rk_([{_ID_ALPHABET}]{{{_ID_LENGTH}}})_([A-Za-z0-9_-]{{43}})")


@dataclass(frozen=True, slots=True, repr=False)
class NewKey:
    """A newly created key. The holder sends `text`; the store keeps only `digest`. The repr does not show it."""

    key_id: str
    text: str
    digest: str


def new_key(key_id: str | None = None) -> NewKey:
    """Creates a secret for the existing key `key_id`, or for a new key if that is None."""
    key_id = key_id or "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return NewKey(key_id, f"rk_{key_id}_{secret}", digest_of(secret))


def parts_of(text: str) -> tuple[str, str] | None:
    """Returns the key id and the digest of the secret, or None if `text` does not have the format of a key."""
    match = _KEY.fullmatch(text)
    return (match[1], digest_of(match[2])) if match else None


def digest_of(secret: str) -> str:
    """Returns the SHA-256 of the secret as hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()
