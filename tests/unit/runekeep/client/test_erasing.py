"""Erasures: what the client and the commands ask for, and what they show of receipts."""

import json

import pytest
from typer.testing import CliRunner

from runekeep import AsyncClient, Client
from runekeep.cli.app import app
from runekeep.client.connection.errors import DeadlineExceededError, NotFoundError
from runekeep.v1 import space_service_pb2 as pb
from tests.unit.runekeep.cli.cli_answers import run
from tests.unit.runekeep.server_double import Refusal, ServerDouble

REMOVING, PURGING, VERIFIED = pb.ERASURE_STATE_REMOVING, pb.ERASURE_STATE_PURGING, pb.ERASURE_STATE_VERIFIED
ID = "er_5c1c0d1e-9d0f-4f0e-8f5a-3d1f6a4e2c11"
BY_HAND = "Run [bold]VACUUM[/bold]."


def erasure(state: int = REMOVING, scope: int = pb.ERASURE_SCOPE_PEER) -> pb.Erasure:
    made = pb.Erasure(
        erasure_id=ID,
        scope=scope,  # type: ignore[arg-type]  # a number of the enum
        state=state,  # type: ignore[arg-type]  # a number of the enum
        erased=pb.SpaceContents(messages=1234, memory_versions=3),
        memories_reverted=2,
        cancelled_tasks=1,
        left_to_operator=[BY_HAND],
    )
    made.create_time.FromJsonString("2026-01-31T00:00:00Z")
    if state == VERIFIED:
        made.verify_time.FromJsonString("2026-01-31T00:01:00Z")
    return made


def told(server: ServerDouble, *later: int, first: int = REMOVING) -> None:
    server.script("EraseData", pb.EraseDataResponse(erasure=erasure(first)))
    server.script("GetErasure", *(pb.GetErasureResponse(erasure=erasure(state)) for state in later))


async def test_a_scope_is_named_as_the_contract_has_it(server: ServerDouble) -> None:
    async with AsyncClient(server.address, user="ann") as client:
        await client.erase(user="ann", request_id="mine")
        await client.erase(peer="bob")
        await client.erase(session="s1")
        await client.erase(session="s1", messages=["m1", "m2"])
        for wrong in ({}, {"user": "ann", "peer": "bob"}, {"messages": ["m1"]}, {"peer": "bob", "messages": ["m1"]}):
            with pytest.raises(ValueError, match="name one of"):
                await client.erase(**wrong)  # type: ignore[arg-type]  # wrong on purpose
    user, peer, session, messages = server.requests("EraseData")
    assert (user.user, user.request_id, user.WhichOneof("scope")) == ("ann", "mine", "user")
    assert (peer.peer_id, peer.WhichOneof("scope")) == ("bob", "peer_id")
    assert (session.session, session.WhichOneof("scope")) == ("s1", "session")
    assert messages.messages == pb.MessageSet(session="s1", message_ids=["m1", "m2"])
    assert len({one.request_id for one in (user, peer, session, messages)}) == 4


def test_a_receipt_is_waited_for_until_it_is_verified(server: ServerDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runekeep.client.spaces.erasure._POLL_SECONDS", 0.0)
    told(server, REMOVING, PURGING, VERIFIED)
    with Client(server.address) as client:
        asked = client.erase(peer="bob")
        done = client.wait_erasure(asked["erasure_id"])
    assert (asked["state"], done["state"]) == ("removing", "verified")
    assert (done["scope"], done["erased"]["messages"], done["memories_reverted"]) == ("peer", 1234, 2)
    assert (asked["verify_time"], done["verify_time"]) == (None, "2026-01-31T00:01:00Z")
    assert done["left_to_operator"] == [BY_HAND]


async def test_waiting_ends_when_its_time_is_over(server: ServerDouble) -> None:
    server.script("GetErasure", pb.GetErasureResponse(erasure=erasure(PURGING)))
    async with AsyncClient(server.address) as client:
        with pytest.raises(DeadlineExceededError, match="not verified yet"):
            await client.wait_erasure(ID, timeout=0.2)


def test_receipts_are_listed_over_pages(server: ServerDouble) -> None:
    server.script(
        "ListErasures",
        pb.ListErasuresResponse(erasures=[erasure()], next_page_token="next"),
        pb.ListErasuresResponse(erasures=[erasure(VERIFIED)]),
    )
    with Client(server.address) as client:
        assert [one["state"] for one in client.erasures()] == ["removing", "verified"]
    assert [one.page_token for one in server.requests("ListErasures")] == ["", "next"]


COMMANDS = (
    ["erase", "user", "ann", "--yes"],
    ["erase", "peer", "bob", "--yes"],
    ["erase", "session", "s1", "--yes"],
    ["erase", "message", "s1", "m1", "m2", "--yes"],
    ["erase", "message", "s1", "m1", "--yes", "--no-wait"],
    ["erase", "show", ID],
    ["erase", "list"],
)


@pytest.fixture
def full(server: ServerDouble, monkeypatch: pytest.MonkeyPatch) -> ServerDouble:
    monkeypatch.setattr("runekeep.client.spaces.erasure._POLL_SECONDS", 0.0)
    told(server, VERIFIED)
    server.script("ListErasures", pb.ListErasuresResponse(erasures=[erasure(VERIFIED)]))
    return server


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_json_and_fits_eighty_columns(full: ServerDouble, command: list[str]) -> None:
    answer = run(full, *command, "--json")
    assert isinstance(json.loads(answer.stdout), dict) and answer.stderr == ""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_people_see_a_receipt(full: ServerDouble, command: list[str]) -> None:
    shown = run(full, *command).stdout
    assert all(len(line) <= 80 for line in shown.splitlines() if ID not in line)
    assert ID in shown
    if command[1] == "list":
        assert "peer" in shown and "verified" in shown
        return
    assert "1,234" in shown and "memory versions" in shown and BY_HAND in shown
    assert ("Verified: nothing was left" in shown) is ("--no-wait" not in command)


def test_nothing_is_erased_unless_the_caller_says_so_twice(full: ServerDouble) -> None:
    command = ["erase", "session", "s1", "--json", "--no-wait", "--address", full.address]
    refused = CliRunner().invoke(app, command, input="n\n")
    assert (refused.exit_code, full.requests("EraseData")) == (1, [])
    agreed = CliRunner().invoke(app, command, input="y\n")
    assert json.loads(agreed.stdout.splitlines()[-1])["state"] == "removing"
    assert "There is no way back" in agreed.stderr


def test_what_is_not_there_says_so(server: ServerDouble) -> None:
    import grpc

    server.script("EraseData", Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", "There is no peer `bob`."))
    with Client(server.address) as client, pytest.raises(NotFoundError, match="no peer"):
        client.erase(peer="bob")
    assert "no peer" in run(server, "erase", "peer", "bob", "--yes", status=1).stderr
