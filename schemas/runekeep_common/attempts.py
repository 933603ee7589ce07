"""Ids that a worker and a server derive independently for the same attempt."""

import hashlib


def attempt_span_id(job_id: str, fencing_token: int) -> str:
    """Returns the id of the attempt's span: 16 hexadecimal digits, never all zeros.

    A killed worker does not report its attempt. The server reports it instead, under the same id, so that the spans
    that the worker already sent stay connected.
    """
    digest = hashlib.sha256(f"{job_id}/{fencing_token}".encode()).hexdigest()[:16]
    return digest if int(digest, 16) else "1".zfill(16)
