"""Nobody reaches what is another's: every RPC that the running server has, tried by strangers on a victim's names."""

from collections.abc import AsyncIterator, Callable

import grpc
import pytest
from google.protobuf.message import Message
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from runekeep.contract import SERVICES
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from tests.support.callers import Caller, failure, unique
from tests.support.changes import put, remove, written
from tests.support.server_process import ServerProcess
from tests.support.tenant_attempts import DOCUMENTS, SECRET, Victim, try_everything, victimized
from tests.support.worker import Worker, write

# Strangers try for longer than the first lease of a job lasts on a busy machine, and the victim's must not run out.
SERVER_SETTINGS = {"RUNEKEEP_FIRST_LEASE_SECONDS": "60"}
NOT_OURS = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


@pytest.fixture
async def victim(callers: Callable[..., Caller], channel: grpc.aio.Channel) -> AsyncIterator[Victim]:
    async with victimized(callers(), channel) as made:
        yield made


def other_leases(victim: Victim) -> list[pb.Lease]:
    """What somebody can guess who knows the task and not the token."""
    token = victim.lease.fencing_token
    return [
        pb.Lease(job_id=job, fencing_token=number)
        for job, number in ((victim.running, token + 1), (victim.running, token + 7), (victim.done, 2), ("none", 1))
    ]


WORKERS: dict[str, Callable[[pb.Lease], Message]] = {
    "GetJobInput": lambda lease: pb.GetJobInputRequest(lease=lease),
    "ReadForJob": lambda lease: pb.ReadForJobRequest(
        lease=lease, read=memory_service_pb2.ReadDocumentRequest(uri="viking://user/memories/preferences/Music.md")
    ),
    "ListForJob": lambda lease: pb.ListForJobRequest(lease=lease, list=memory_service_pb2.ListDirectoryRequest()),
    "FindForJob": lambda lease: pb.FindForJobRequest(
        lease=lease, find=memory_service_pb2.FindMemoriesRequest(query=SECRET)
    ),
    "EmbedForJob": lambda lease: pb.EmbedForJobRequest(lease=lease, texts=[SECRET]),
}
# It has a test of its own below.
STREAM = "Work"


def test_the_tables_know_every_service_of_the_running_server(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        served = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert served - NOT_OURS == {service.full_name for service in SERVICES}
    workers = {method.name for method in pb.DESCRIPTOR.services_by_name["ExtractorService"].methods}
    assert workers == {*WORKERS, STREAM}


STRANGERS = ("another user of the account", "the same user id in another account", "another user of another account")


def stranger(callers: Callable[..., Caller], victim: Victim, who: str) -> Caller:
    match who:
        case "another user of the account":
            return callers(account=victim.caller.account)
        case "the same user id in another account":
            return callers(user=victim.caller.user)
    return callers()


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_sees_and_changes_nothing(callers: Callable[..., Caller], victim: Victim, who: str) -> None:
    before = await victim.state()
    other = stranger(callers, victim, who)
    # What no row of the table makes is there to be found.
    assert SECRET.encode() in b"".join(one.SerializeToString() for one in before)
    await try_everything(other, victim)
    assert await victim.state() == before


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_who_writes_the_same_names_writes_memories_of_their_own(
    callers: Callable[..., Caller], victim: Victim, who: str
) -> None:
    before = await victim.state()
    other = stranger(callers, victim, who)
    answer = await written(other, put("preferences", topic="Music", content="Hates it."))
    assert (answer.revision, answer.memories[0].version) == (1, 1)
    assert answer.memories[0].uri == other.uri(DOCUMENTS[0])
    assert (await written(other, remove(other.uri(DOCUMENTS[0]), 1))).revision == 2
    assert await victim.state() == before


async def test_a_request_id_of_another_user_gives_no_answer(callers: Callable[..., Caller], victim: Victim) -> None:
    request = session_service_pb2.CreateSessionRequest(title=SECRET, request_id=unique("r"))
    await victim.caller.sessions.CreateSession(request)
    other = callers(account=victim.caller.account)
    own = (await other.sessions.CreateSession(request)).session
    assert own.uri.startswith(other.uri("sessions/"))


async def test_a_page_token_of_another_user_opens_nothing(callers: Callable[..., Caller]) -> None:
    one, other = callers(), callers()
    for _ in range(3):
        await one.session()
    own = await other.session()
    page = await one.sessions.ListSessions(session_service_pb2.ListSessionsRequest(page_size=1))
    request = session_service_pb2.ListSessionsRequest(page_size=1, page_token=page.next_page_token)
    answer = await other.sessions.ListSessions(request)
    assert {session.session_id for session in answer.sessions} <= {own}


async def test_whoever_holds_no_lease_reads_nothing_of_its_job(victim: Victim, channel: grpc.aio.Channel) -> None:
    before = await victim.state()
    worker = Worker(channel, "stranger")
    for lease in other_leases(victim):
        for method, request in WORKERS.items():
            failed = await failure(getattr(worker.calls, method)(request(lease)))
            assert failed.seen == ("ABORTED", "LEASE_LOST"), f"{method}: {failed}"
    await worker.break_off()
    assert await victim.state() == before


async def test_whoever_holds_no_lease_ends_no_job(victim: Victim, channel: grpc.aio.Channel) -> None:
    before = await victim.state()
    leases = other_leases(victim)
    async with Worker(channel, "stranger", resume=leases) as worker:
        assert {state.status for state in worker.welcome.resumed} == {pb.LEASE_STATUS_LOST}
        for number, lease in enumerate(leases, 1):
            update = await worker.heartbeat(lease, sequence=number)
            assert [state.status for state in update.leases] == [pb.LEASE_STATUS_LOST]
            for verdict in (
                await worker.deliver(lease, write("preferences", topic="Music", content="forged")),
                await worker.fail(lease, pb.FAILURE_CLASS_INTERNAL, retryable=False),
                await worker.release(lease),
            ):
                assert verdict.outcome == pb.JOB_OUTCOME_LEASE_LOST
            await worker.progress(lease, task_service_pb2.TASK_PHASE_APPLY, 99, "forged")
        await worker.heartbeat(sequence=99)
    assert await victim.state() == before
