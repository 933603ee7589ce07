"""Fences around texts that are data, so that nothing within them can pass for what stands outside."""

import hashlib
from collections.abc import Sequence

from extractor.engine import Job


def fenced(job: Job, name: str, lines: Sequence[str]) -> str:
    """The lines between marks that hang on the text itself, so that a text cannot hold its own fence; the same for
    the same job, so that a repair finds the provider's cache warm.
    """
    body = "\n".join(lines)
    mark = hashlib.sha256(f"{job.assignment.lease.job_id}\n{body}".encode(errors="replace")).hexdigest()[:16]
    return f"<{name}-{mark}>\n{body}\n</{name}-{mark}>"
