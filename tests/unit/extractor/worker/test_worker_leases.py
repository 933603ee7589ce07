"""Leases of a worker, and the streams that they are held over: renewed, lost, in doubt, given back."""

import asyncio

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2
from tests.unit.extractor.server_double import assignment, lease, verdict

pb = extractor_service_pb2


async def assigned(server, run_worker, **welcome):
    """The conversation of a worker that was given a job."""
    double, _ = server
    await run_worker()
    talk = await double.conversation()
    await talk.welcome(**welcome)
    talk.say(assignment=assignment())
    return talk


async def test_leases_are_renewed_at_once_and_by_the_timer(server, engine, run_worker):
    talk = await assigned(server, run_worker, heartbeat=0.01)
    first = await talk.expect("heartbeat")
    second = await talk.expect("heartbeat")
    assert list(first.leases) == list(second.leases) == [lease()]
    assert second.sequence > first.sequence


async def test_a_broken_stream_is_resumed_and_the_output_sent_again(server, engine, run_worker):
    double, _ = server
    engine.go_on.set()
    await run_worker()
    talk = await double.conversation()
    hello = await talk.welcome()
    talk.say(assignment=assignment())
    chunks, complete = await talk.output()
    talk.fail(grpc.StatusCode.UNAVAILABLE)

    again = await double.conversation()
    resumed = [pb.LeaseState(lease=lease(), status=pb.LEASE_STATUS_HELD)]
    second_hello = await again.welcome(resumed=resumed)
    assert list(second_hello.resume) == [lease()]
    assert second_hello.incarnation_id == hello.incarnation_id
    assert (await again.output()) == (chunks, complete)
    again.say(verdict=verdict(pb.JOB_OUTCOME_ALREADY_APPLIED))
    await again.expect("ready")


async def test_work_goes_on_while_there_is_no_stream(server, engine, run_worker):
    double, _ = server
    talk = await assigned(server, run_worker)
    await engine.begun.wait()
    talk.fail(grpc.StatusCode.UNAVAILABLE)
    again = await double.conversation()
    engine.go_on.set()
    await again.welcome(resumed=[pb.LeaseState(lease=lease(), status=pb.LEASE_STATUS_HELD)])
    _, complete = await again.output()
    assert complete.lease == lease()


@pytest.mark.parametrize("status", [pb.LEASE_STATUS_LOST, pb.LEASE_STATUS_APPLIED])
async def test_a_lease_that_ended_meanwhile_is_dropped_at_the_welcome(server, engine, run_worker, status):
    double, _ = server
    talk = await assigned(server, run_worker)
    await engine.begun.wait()
    talk.fail(grpc.StatusCode.UNAVAILABLE)
    again = await double.conversation()
    await again.welcome(resumed=[pb.LeaseState(lease=lease(), status=status)])
    await engine.cancelled.wait()


async def test_cancel_stops_the_job_and_says_nothing_more(server, engine, run_worker):
    double, _ = server
    await run_worker(concurrency=1)
    talk = await double.conversation()
    await talk.welcome()
    await talk.expect("ready")
    talk.say(assignment=assignment())
    await engine.begun.wait()
    talk.say(cancel=pb.CancelJob(lease=lease(), reason="by the caller"))
    await engine.cancelled.wait()
    # Nothing about the job comes before the request for another one.
    await talk.expect("ready", skip=("heartbeat",))


async def test_a_lease_named_lost_stops_the_job(server, engine, run_worker):
    talk = await assigned(server, run_worker)
    await engine.begun.wait()
    beat = await talk.expect("heartbeat")
    lost = pb.LeaseState(lease=lease(), status=pb.LEASE_STATUS_LOST)
    talk.say(lease_update=pb.LeaseUpdate(heartbeat_sequence=beat.sequence, leases=[lost]))
    await engine.cancelled.wait()


async def test_a_lease_whose_heartbeats_go_unanswered_counts_as_lost(server, engine, run_worker):
    await assigned(server, run_worker, lease=1.5, heartbeat=0.05)
    await engine.begun.wait()
    await engine.cancelled.wait()


@pytest.mark.parametrize("status", [pb.LEASE_STATUS_HELD, pb.LEASE_STATUS_LOST])
async def test_a_lease_that_no_server_could_renew_is_in_doubt_until_one_says(server, engine, run_worker, status):
    double, _ = server
    talk = await assigned(server, run_worker, lease=2.0, heartbeat=0.05)
    await engine.begun.wait()
    talk.fail(grpc.StatusCode.UNAVAILABLE)
    again = await double.conversation()
    # The passing of time is what is tried: the lease is over on the worker's own clock.
    await asyncio.sleep(2.5)
    assert not engine.cancelled.is_set()
    await again.welcome(resumed=[pb.LeaseState(lease=lease(), status=status)])
    if status == pb.LEASE_STATUS_LOST:
        await engine.cancelled.wait()
    else:
        engine.go_on.set()
        _, complete = await again.output()
        assert complete.lease == lease()


async def test_a_lease_that_a_welcome_calls_held_runs_from_the_hello_on(server, engine, run_worker):
    """And is lost when nothing more is heard of it."""
    double, _ = server
    talk = await assigned(server, run_worker, lease=2.0)
    await engine.begun.wait()
    talk.fail(grpc.StatusCode.UNAVAILABLE)
    again = await double.conversation()
    await asyncio.sleep(2.5)
    await again.welcome(lease=0.3, resumed=[pb.LeaseState(lease=lease(), status=pb.LEASE_STATUS_HELD)])
    async with asyncio.timeout(20):
        await engine.cancelled.wait()


async def test_answered_heartbeats_keep_the_lease(server, engine, run_worker):
    talk = await assigned(server, run_worker, lease=2.0, heartbeat=0.05)
    # Enough answered heartbeats to outlast the first lease.
    for _ in range(50):
        beat = await talk.expect("heartbeat")
        held = pb.LeaseState(lease=lease(), status=pb.LEASE_STATUS_HELD)
        talk.say(lease_update=pb.LeaseUpdate(heartbeat_sequence=beat.sequence, leases=[held]))
    assert not engine.cancelled.is_set()
    engine.go_on.set()
    await talk.output()


async def test_a_job_that_hangs_is_not_renewed(server, engine, run_worker):
    double, _ = server
    await run_worker(stall_timeout=0.1)
    talk = await double.conversation()
    await talk.welcome(lease=0.5, heartbeat=0.02)
    talk.say(assignment=assignment())

    async def answer_all():
        while True:
            beat = await talk.expect("heartbeat")
            states = [pb.LeaseState(lease=held, status=pb.LEASE_STATUS_HELD) for held in beat.leases]
            talk.say(lease_update=pb.LeaseUpdate(heartbeat_sequence=beat.sequence, leases=states))

    answers = asyncio.create_task(answer_all())
    await engine.cancelled.wait()
    answers.cancel()


async def test_drain_moves_to_another_stream(server, engine, run_worker):
    double, _ = server
    talk = await assigned(server, run_worker)
    await engine.begun.wait()
    talk.say(drain=pb.Drain())
    again = await double.conversation()
    hello = await again.welcome(resumed=[pb.LeaseState(lease=lease(), status=pb.LEASE_STATUS_HELD)])
    assert list(hello.resume) == [lease()]
    await talk.expect_end()
    engine.go_on.set()
    _, complete = await again.output()
    assert complete.lease == lease()


async def test_stopping_gives_back_what_does_not_finish(server, engine, run_worker):
    double, _ = server
    running = await run_worker(grace=0.0)
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    await engine.begun.wait()
    running.stop.set()
    await talk.expect("goodbye")
    release = await talk.expect("release")
    assert release.lease == lease()
    await talk.expect_end()
    talk.end()
    await running.task
    assert engine.cancelled.is_set()


async def test_stopping_lets_jobs_finish_within_the_grace(server, engine, run_worker):
    double, _ = server
    running = await run_worker(grace=60.0)
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    await engine.begun.wait()
    running.stop.set()
    await talk.expect("goodbye")
    engine.go_on.set()
    await talk.output()
    talk.say(verdict=verdict(pb.JOB_OUTCOME_APPLIED))
    await talk.expect_end()
    talk.end()
    await running.task


async def test_a_job_that_comes_after_goodbye_goes_back(server, engine, run_worker):
    double, _ = server
    running = await run_worker(grace=60.0)
    talk = await double.conversation()
    await talk.welcome()
    talk.say(assignment=assignment())
    await engine.begun.wait()
    running.stop.set()
    await talk.expect("goodbye")
    talk.say(assignment=assignment(lease(5, "job-2")))
    release = await talk.expect("release")
    assert release.lease == lease(5, "job-2")


async def test_a_lease_refused_by_a_read_ends_the_job_silently(server, engine, run_worker):
    double, _ = server

    async def work(job):
        double.failures.append(grpc.StatusCode.ABORTED)
        await job.read("viking://user/default/memories/profile.md")

    engine.work = work
    await run_worker(concurrency=1)
    talk = await double.conversation()
    await talk.welcome()
    await talk.expect("ready")
    talk.say(assignment=assignment())
    await talk.expect("ready", skip=("heartbeat",))
