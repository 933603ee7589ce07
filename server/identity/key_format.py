"""What an API key looks like: `rk_{key_id}_{secret}`.

The id is public. The secret is 32 random bytes, so a single SHA-256 of it is no help to who reads the store: there is
nothing to guess, and a slow hash would only slow down every call.
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
class Made:
    """A key that was just made. `text` is what its holder sends; of it only `digest` is kept. Not shown by repr."""

    key_id: str
    text: str
    digest: str


def new_key(key_id: str | None = None) -> Made:
    """A new secret, of a key that there is (`key_id`) or of a new one."""
    key_id = key_id or "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return Made(key_id, f"rk_{key_id}_{secret}", digest_of(secret))


def parts_of(text: str) -> tuple[str, str] | None:
    """Id and digest of what might be a key; None for what is none."""
    match = _KEY.fullmatch(text)
    return (match[1], digest_of(match[2])) if match else None


def digest_of(secret: str) -> str:
    """Hexadecimal digits of SHA-256."""
    return hashlib.sha256(secret.encode()).hexdigest()
