"""Leases whose worker moves to a new stream while the server still reads the old one."""

import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.leases.lease_table import LeaseRecord, LeaseTable, lost_message
from runekeep_server.leases.outbox import Outbox
from runekeep_storage.database import Space
from runekeep_storage.records import LeaseId

LEASE, SPACE = LeaseId("t1", 1, "key:w", "", b"secret"), Space("acme", "ann")


@pytest.fixture
def old() -> Outbox:
    return Outbox("w")


@pytest.fixture
def new() -> Outbox:
    return Outbox("w")


@pytest.fixture
def table(old: Outbox) -> LeaseTable:
    table = LeaseTable()
    table.add(LeaseRecord(LEASE, SPACE, old))
    return table


async def test_a_lease_belongs_to_the_stream_that_resumed_it(table: LeaseTable, old: Outbox, new: Outbox) -> None:
    table.hold(LEASE, SPACE, new, resumes=True)
    table.hold(LEASE, SPACE, old, resumes=False)
    assert table.find(LEASE, new) is not None and table.find(LEASE, old) is None
    assert table.end_stream(old) == 0
    assert table.find(LEASE, new) is not None
    table.end(LeaseId("t1", 1), lost_message)
    response = await new.next()
    assert response is not None
    (state,) = response.lease_update.leases
    assert (state.lease.secret, state.status) == (b"secret", pb.LEASE_STATUS_LOST)
    assert table.space_of(LEASE) is None


def test_a_heartbeat_takes_the_lease_of_a_closed_stream(table: LeaseTable, old: Outbox, new: Outbox) -> None:
    table.hold(LEASE, SPACE, new, resumes=False)
    assert table.find(LEASE, new) is None
    old.close()
    table.hold(LEASE, SPACE, new, resumes=False)
    assert table.find(LEASE, new) is not None


def test_a_heartbeat_keeps_what_is_known_of_its_lease(table: LeaseTable, old: Outbox) -> None:
    known = table.find(LEASE, old)
    table.hold(LEASE, SPACE, old, resumes=False)
    assert table.find(LEASE, old) is known


def test_an_assignment_that_was_not_sent_outlives_its_stream(table: LeaseTable, old: Outbox) -> None:
    unsent = LeaseId("t2", 1)
    table.add(LeaseRecord(unsent, SPACE, old, is_sent=False))
    assert table.end_stream(old) == 1
    assert table.undelivered() == [unsent]
    assert table.space_of(unsent) == SPACE and table.space_of(LEASE) is None
