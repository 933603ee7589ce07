"""Named points at which a test kills or stops this process, to prove what the design claims about crashes.

Only the environment of the process arms them; passing an unarmed one costs one comparison:

    RUNEKEEP_FAILPOINT=apply.before_commit:KILL:2     the second time this process comes by, it sends itself SIGKILL
    RUNEKEEP_FAILPOINT_LOG=/tmp/fired                 one line for each that fired, on disk before the signal

They are in this package because every other package has some. The list follows the proofs that worker-protocol.md
requires, followed by those of the turn jobs.
"""

import os
import signal

COMMIT_BEFORE_COMMIT = "commit.before_commit"
"""Phase 1, in its transaction: archive and job are written, COMMIT is not sent."""
COMMIT_AFTER_COMMIT = "commit.after_commit"
"""Phase 1 is durable; the caller has no answer yet."""
CLAIM = "claim"
"""A job is leased; nobody is notified yet."""
ASSIGN = "assign"
"""The assignment was written to the worker's stream."""
INPUT = "input"
"""The worker has its input."""
MID_CHUNKS = "output.mid_chunks"
"""The worker has written a chunk of its output, and not yet the next one."""
BEFORE_COMPLETE = "output.before_complete"
"""The worker has written all chunks, and not yet JobComplete."""
APPLY_PREPARED = "apply.prepared"
"""The server holds the prepared commit, outside any transaction."""
APPLY_MID_OPERATIONS = "apply.mid_operations"
"""In the transaction: one memory is written, others are not."""
APPLY_BEFORE_COMMIT = "apply.before_commit"
"""In the transaction: everything is written, COMMIT is not sent."""
APPLY_AFTER_COMMIT = "apply.after_commit"
"""The commit is durable; the worker has no verdict yet."""
TURN_BEFORE_COMMIT = "turn.before_commit"
"""In the transaction: a turn's extracted memory is written, COMMIT is not sent."""
TURN_AFTER_COMMIT = "turn.after_commit"
"""A turn's extracted memory is durable; the worker has no verdict yet."""
BUCKET_BLOB_WRITTEN = "bucket.blob_written"
"""The blob of a bucket exists; the row that references it does not."""
BUCKET_BEFORE_COMMIT = "bucket.before_commit"
"""In the transaction: buckets and their coverage are written, COMMIT is not sent."""
BUCKET_AFTER_COMMIT = "bucket.after_commit"
"""Buckets are durable; the worker has no verdict yet."""
RELAY_AFTER_UPSERT = "relay.after_upsert"
"""The index has the points; the store does not know yet."""
RELAY_BEFORE_MARK = "relay.before_mark"
"""The index has them on disk; the outbox still contains them."""
RELAY_BEFORE_WATERMARK = "relay.before_watermark"
"""In the transaction: the outbox entries are deleted, the watermark has not moved."""
PROPOSAL_AFTER_COMMIT = "proposal.after_commit"
"""What was accepted of a proposal is durable; the reviewer has no answer yet."""
REEMBED_BEFORE_SWITCH = "reembed.before_switch"
"""Rows have their vectors by the new embedder; no space that they complete is switched yet."""
ERASURE_BEFORE_COMMIT = "erasure.before_commit"
"""In the transaction: rows are erased, COMMIT is not sent."""
ERASURE_BEFORE_PURGE = "erasure.before_purge"
"""All rows are erased; store and index still hold the deleted data until they purge it."""
ERASURE_MID_PURGE = "erasure.mid_purge"
"""The store has purged it; the index has not."""
ERASURE_AFTER_PURGE = "erasure.after_purge"
"""Both have purged it; the result is not verified yet."""

SERVER = (
    COMMIT_BEFORE_COMMIT,
    COMMIT_AFTER_COMMIT,
    CLAIM,
    ASSIGN,
    APPLY_PREPARED,
    APPLY_MID_OPERATIONS,
    APPLY_BEFORE_COMMIT,
    APPLY_AFTER_COMMIT,
    TURN_BEFORE_COMMIT,
    TURN_AFTER_COMMIT,
    BUCKET_BLOB_WRITTEN,
    BUCKET_BEFORE_COMMIT,
    BUCKET_AFTER_COMMIT,
    RELAY_AFTER_UPSERT,
    RELAY_BEFORE_MARK,
    RELAY_BEFORE_WATERMARK,
)
ERASURE = (ERASURE_BEFORE_COMMIT, ERASURE_BEFORE_PURGE, ERASURE_MID_PURGE, ERASURE_AFTER_PURGE)
EXTRACTOR = (INPUT, MID_CHUNKS, BEFORE_COMPLETE)

_SPEC = os.environ.get("RUNEKEEP_FAILPOINT", "").split(":")
_ARMED = _SPEC[0]
_SIGNAL = signal.Signals[f"SIG{_SPEC[1]}"] if len(_SPEC) > 1 else signal.SIGKILL
_TIMES = int(_SPEC[2]) if len(_SPEC) > 2 else 1
_passed = 0


def reached(name: str) -> None:
    """Fires the failpoint if it is armed; otherwise does nothing."""
    global _passed
    if name != _ARMED:
        return
    _passed += 1
    if _passed == _TIMES:
        _record(name)
        os.kill(os.getpid(), _SIGNAL)


def _record(name: str) -> None:
    path = os.environ.get("RUNEKEEP_FAILPOINT_LOG")
    if path:
        with open(path, "a") as log:
            log.write(f"{name} {os.getpid()}\n")
            log.flush()
            os.fsync(log.fileno())
