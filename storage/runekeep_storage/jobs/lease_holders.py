"""Decides who may use a lease, for every call and every message that names one. No other module decides this.

A claim binds the lease to the principal that gets it, and to a random secret of which only the hash is stored. A server
of the previous release binds nothing: whoever knows such a lease may use it, and it is bound to the first principal
that renews it at a server of this release.
"""

import hashlib
import secrets
from hmac import compare_digest
from typing import Final

from runekeep_storage.records import Job, LeaseId

SECRET_BYTES: Final = 16


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def digest_of(secret: bytes) -> str:
    """Returns the hexadecimal digits of SHA-256, which is enough for 128 random bits; "" for no secret."""
    return hashlib.sha256(secret).hexdigest() if secret else ""


def is_bound(job: Job, token: int) -> bool:
    """Returns whether the lease with this token, the newest or an earlier one, was bound when it was given."""
    return job.bound_token == token


def may_use(job: Job, lease: LeaseId) -> bool:
    """Returns whether the worker that presents `lease` is the one that got it. Does not check whether it is still
    held."""
    if not is_bound(job, lease.token):
        # The job stores nothing about an earlier lease, unless the server that gave it bound nothing.
        return job.bound_token < lease.token
    if job.holder != lease.holder:
        return False
    return not job.digest or compare_digest(job.digest, lease.digest)
