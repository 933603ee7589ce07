"""Workers built before leases had a secret still send it back."""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from runekeep.v1 import extractor_service_pb2 as pb

BEFORE = ("job_id", "fencing_token")


@cache
def contract_of_before() -> descriptor_pool.DescriptorPool:
    """The earlier contract, in which a lease has no secret."""
    files = descriptor_pb2.FileDescriptorSet.FromString(Path("proto/baseline.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        for message in file.message_type:
            if (file.package, message.name) == ("runekeep.v1", "Lease"):
                kept = [field for field in message.field if field.name in BEFORE]
                del message.field[:]
                message.field.extend(kept)
        pool.Add(file)
    return pool


def of_before(name: str) -> type[Any]:
    """Returns a message of that contract."""
    return message_factory.GetMessageClass(contract_of_before().FindMessageTypeByName(f"runekeep.v1.{name}"))


def test_a_lease_comes_back_whole_from_a_worker_that_knows_less_of_it() -> None:
    lease = pb.Lease(job_id="job", fencing_token=7, secret=b"0123456789abcdef")
    told = of_before("JobAssignment").FromString(pb.JobAssignment(lease=lease).SerializeToString())
    assert [field.name for field in told.lease.DESCRIPTOR.fields] == list(BEFORE)
    # A worker puts the lease of its assignment into its own messages.
    request, hello = of_before("GetJobInputRequest")(lease=told.lease), of_before("Hello")(resume=[told.lease])
    assert pb.GetJobInputRequest.FromString(request.SerializeToString()).lease == lease
    assert list(pb.Hello.FromString(hello.SerializeToString()).resume) == [lease]
