"""What a worker and a server both know of an attempt without a word between them."""

import hashlib


def attempt_span_id(job_id: str, fencing_token: int) -> str:
    """Id of the attempt's span, 16 hexadecimal digits, never all zeros.

    A worker that is killed tells nobody of its attempt. Its server does so in its place, under the same id, so that
    what the worker had told of parts of the attempt hangs together.
    """
    digest = hashlib.sha256(f"{job_id}/{fencing_token}".encode()).hexdigest()[:16]
    return digest if int(digest, 16) else "1".zfill(16)
