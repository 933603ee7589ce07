"""Who may use a lease. This is the one place that decides it, for every call and every message that names a lease.

A claim binds the lease to the principal that it is given to, and to a random secret of which only the hash is kept. A
server of the release before binds nothing: such a lease is used by whoever knows it, and bound to the first principal
that renews it at a server of this release.
"""

import hashlib
import secrets
from hmac import compare_digest
from typing import Final

from storage.records import Job, LeaseId

SECRET_BYTES: Final = 16


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def digest_of(secret: bytes) -> str:
    """Hexadecimal digits of SHA-256, for 128 random bits need no slower hash; "" for no secret."""
    return hashlib.sha256(secret).hexdigest() if secret else ""


def is_bound(job: Job, token: int) -> bool:
    """Whether the lease with this token, the newest or one that ended, was bound when it was given away."""
    return job.bound_token == token


def may_use(job: Job, lease: LeaseId) -> bool:
    """Whether `lease` is shown by the one to whom it was given. It says nothing of whether it is still held."""
    if not is_bound(job, lease.token):
        # Of an earlier lease nothing is known any more, unless the server that gave it bound nothing.
        return job.bound_token < lease.token
    if job.holder != lease.holder:
        return False
    return not job.digest or compare_digest(job.digest, lease.digest)
