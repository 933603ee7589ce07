"""Named places at which a test ends or stops this process, so that what is claimed of crashes is seen.

Armed by the environment of the process and by nothing else; unarmed, passing one costs one comparison:

    RUNEKEEP_FAILPOINT=apply.before_commit:KILL:2     the second time this process comes by, it sends itself SIGKILL
    RUNEKEEP_FAILPOINT_LOG=/tmp/fired                 one line for each that fired, on disk before the signal

They are in this room because every room has some. The list follows the proofs that worker-protocol.md asks for,
and goes on with the jobs about turns.
"""

import os
import signal

COMMIT_BEFORE_COMMIT = "commit.before_commit"
"""Phase 1, in its transaction: archive and job are written, COMMIT is not said."""
COMMIT_AFTER_COMMIT = "commit.after_commit"
"""Phase 1 is durable, its caller has no answer."""
CLAIM = "claim"
"""A job is leased, and nobody told."""
ASSIGN = "assign"
"""The assignment was written to the worker's stream."""
INPUT = "input"
"""The worker has its input."""
MID_CHUNKS = "output.mid_chunks"
"""The worker has written a chunk of its output and not the next."""
BEFORE_COMPLETE = "output.before_complete"
"""The worker has written all chunks, and not yet that they are all."""
APPLY_PREPARED = "apply.prepared"
"""The server holds the commit, ready, outside any transaction."""
APPLY_MID_OPERATIONS = "apply.mid_operations"
"""In the transaction, one memory is written and others are not."""
APPLY_BEFORE_COMMIT = "apply.before_commit"
"""In the transaction, all is written, COMMIT is not said."""
APPLY_AFTER_COMMIT = "apply.after_commit"
"""The commit is durable, the worker has no verdict."""
TURN_BEFORE_COMMIT = "turn.before_commit"
"""In the transaction, what was found out about a turn is written, COMMIT is not said."""
TURN_AFTER_COMMIT = "turn.after_commit"
"""What was found out about a turn is durable, the worker has no verdict."""
BUCKET_BLOB_WRITTEN = "bucket.blob_written"
"""The blob of a bucket is there, the row that names it is not."""
BUCKET_BEFORE_COMMIT = "bucket.before_commit"
"""In the transaction, buckets and what they cover are written, COMMIT is not said."""
BUCKET_AFTER_COMMIT = "bucket.after_commit"
"""Buckets are durable, the worker has no verdict."""
RELAY_AFTER_UPSERT = "relay.after_upsert"
"""The index has the points, the store does not know."""
RELAY_BEFORE_MARK = "relay.before_mark"
"""The index has them on disk, the outbox still names them."""
RELAY_BEFORE_WATERMARK = "relay.before_watermark"
"""In the transaction, the outbox has forgotten them, the watermark has not moved."""
ERASURE_BEFORE_COMMIT = "erasure.before_commit"
"""In the transaction, rows are erased, COMMIT is not said."""
ERASURE_BEFORE_PURGE = "erasure.before_purge"
"""All is taken away, store and index still keep what is deleted."""
ERASURE_MID_PURGE = "erasure.mid_purge"
"""The store has let go of it, the index has not."""
ERASURE_AFTER_PURGE = "erasure.after_purge"
"""Both have, and nobody has looked through them."""

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
    """Does nothing but where it is armed."""
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
