"""Builds verdicts on attempts that were not applied, each with the reason."""

from google.rpc import code_pb2, status_pb2

from runekeep.v1 import extractor_service_pb2 as pb


def not_applied(
    lease: pb.Lease, outcome: pb.JobOutcome.ValueType, code: code_pb2.Code.ValueType, message: str
) -> pb.JobVerdict:
    """Returns a verdict. `message`: a sentence without user content."""
    return pb.JobVerdict(lease=lease, outcome=outcome, status=status_pb2.Status(code=code, message=message))


def lease_lost(lease: pb.Lease) -> pb.JobVerdict:
    message = "the lease is not held: it expired, was released, or its attempt has ended"
    return not_applied(lease, pb.JOB_OUTCOME_LEASE_LOST, code_pb2.ABORTED, message)


def job_cancelled(lease: pb.Lease) -> pb.JobVerdict:
    return not_applied(lease, pb.JOB_OUTCOME_CANCELLED, code_pb2.CANCELLED, "the job was cancelled")


def store_unavailable(lease: pb.Lease) -> pb.JobVerdict:
    message = "the store is unavailable: send the same message again"
    return not_applied(lease, pb.JOB_OUTCOME_TRY_AGAIN, code_pb2.UNAVAILABLE, message)


def chunks_missing(lease: pb.Lease, received: int, sent: int) -> pb.JobVerdict:
    message = f"the server has {received} of the output's {sent} chunks: send all of them again, from 0"
    return not_applied(lease, pb.JOB_OUTCOME_TRY_AGAIN, code_pb2.ABORTED, message)


def server_error(lease: pb.Lease) -> pb.JobVerdict:
    """Returns the verdict if the server could not even count the attempt."""
    message = "the server failed on this message: send it again"
    return not_applied(lease, pb.JOB_OUTCOME_TRY_AGAIN, code_pb2.INTERNAL, message)
