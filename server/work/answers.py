"""Verdicts on outputs and ends that were not applied, each with the reason."""

from google.rpc import code_pb2, status_pb2

from runekeep.v1 import extractor_service_pb2 as pb


def not_applied(
    lease: pb.Lease, outcome: pb.JobOutcome.ValueType, code: code_pb2.Code.ValueType, why: str
) -> pb.JobVerdict:
    """`why`: a sentence without anything that a user said."""
    return pb.JobVerdict(lease=lease, outcome=outcome, status=status_pb2.Status(code=code, message=why))


def lost(lease: pb.Lease) -> pb.JobVerdict:
    why = "the lease is not held: it ran out, was given back, or its attempt has ended"
    return not_applied(lease, pb.JOB_OUTCOME_LEASE_LOST, code_pb2.ABORTED, why)


def cancelled(lease: pb.Lease) -> pb.JobVerdict:
    return not_applied(lease, pb.JOB_OUTCOME_CANCELLED, code_pb2.CANCELLED, "the job was cancelled")


def store_away(lease: pb.Lease) -> pb.JobVerdict:
    why = "the store cannot be reached now: send the same again"
    return not_applied(lease, pb.JOB_OUTCOME_TRY_AGAIN, code_pb2.UNAVAILABLE, why)


def chunks_missing(lease: pb.Lease, there: int, sent: int) -> pb.JobVerdict:
    why = f"{there} of the output's {sent} chunks are here: send all of them again, from 0"
    return not_applied(lease, pb.JOB_OUTCOME_TRY_AGAIN, code_pb2.ABORTED, why)


def server_failed(lease: pb.Lease) -> pb.JobVerdict:
    """The server could not even count the attempt."""
    why = "the server failed on this message: send the same again"
    return not_applied(lease, pb.JOB_OUTCOME_TRY_AGAIN, code_pb2.INTERNAL, why)
