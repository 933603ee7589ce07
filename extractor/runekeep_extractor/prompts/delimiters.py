"""Delimiters around texts that are data, so that no text inside can pass for instructions outside."""

import hashlib
from collections.abc import Sequence

from runekeep_extractor.engine.interface import Job


def fenced(job: Job, name: str, lines: Sequence[str]) -> str:
    """Returns the lines between delimiters derived from the text itself, so that a text cannot contain its own
    delimiter. Equal jobs give equal delimiters, so that a repair hits the provider's cache.
    """
    body = "\n".join(lines)
    mark = hashlib.sha256(f"{job.assignment.lease.job_id}\n{body}".encode(errors="replace")).hexdigest()[:16]
    return f"<{name}-{mark}>\n{body}\n</{name}-{mark}>"
