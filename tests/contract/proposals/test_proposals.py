"""Proposals in the store: their order, their limits, and two who decide at a time."""

import json
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf import json_format
from pydantic import ValidationError

from runekeep.v1 import common_pb2
from runekeep_schemas.memory_types.model import Review
from runekeep_schemas.policy import Plan
from runekeep_server.apply.applier import Applier
from runekeep_server.apply.output import Output
from runekeep_storage.database import Database
from runekeep_storage.erasure import derived_data
from runekeep_storage.errors import NotFound, VersionConflict
from runekeep_storage.jobs.extraction_records import AttemptRecord, pack
from runekeep_storage.memories.apply import Applied
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import ACCEPTED, REFUSED, Proposal, ProposedOperation
from runekeep_storage.store import Store
from runekeep_storage.transfer.exports import proposal_rows
from tests.support.storage.databases import ANN, BOB, PLAN, Clock, claim, commit, talk
from tests.support.storage.deletions import dump
from tests.support.storage.search import Search
from tests.support.worker import write


def proposal(task_id: str, *contents: str, session_id: str = "s") -> Proposal:
    held = [
        ProposedOperation(
            number, "write", "preferences", operation={"write": {"memory_type": "preferences", "abstract": text}}
        )
        for number, text in enumerate(contents, start=1)
    ]
    return Proposal(session_id, task_id, 1, PLAN, "{}", tuple(held), revision=3)


async def test_proposals_are_listed_with_what_is_open_and_only_their_users(database: Database, clock: Clock) -> None:
    for task_id in ("t1", "t2", "t3"):
        clock.advance(1)
        await database.write(proposals.create, ANN, proposal(task_id, "tea", session_id=f"s-{task_id}"))
    await database.write(proposals.create, BOB, proposal("t1", "tea"))

    async def listed(*after: object, session_id: str = "", decided: bool = False) -> list[str]:
        key = after or None
        found = await database.read(proposals.page, ANN, session_id, key, 2, include_decided=decided)  # type: ignore[arg-type]  # a key
        return [one.task_id for one in found]

    t2 = await database.read(proposals.get, ANN, "t2")
    assert await listed() == ["t3", "t2"] and await listed(t2.created_at, "t2") == ["t1"]
    await database.write(proposals.update, ANN, t2.with_operations([t2.operations[0].decided(REFUSED)]))
    assert await listed() == ["t3", "t1"] and await listed(decided=True) == ["t3", "t2"]
    assert await listed(session_id="s-t1") == ["t1"] and await listed(session_id="s-t2") == []
    with pytest.raises(NotFound):
        await database.read(proposals.get, BOB, "t2")


async def test_of_two_who_decide_at_a_time_one_begins_again_and_a_decided_text_is_gone(database: Database) -> None:
    await database.write(proposals.create, ANN, proposal("t", "quokka", "tea"))
    before = await database.read(proposals.get, ANN, "t")
    first, second = (before.with_operations([before.operations[0].decided(one)]) for one in (ACCEPTED, REFUSED))
    await database.write(proposals.update, ANN, first)
    with pytest.raises(VersionConflict):
        await database.write(proposals.update, ANN, second)
    kept = await database.read(proposals.get, ANN, "t")
    assert [one.state for one in kept.operations] == ["accepted", "open"]
    (row,) = (await dump(database, ANN))["proposals"]
    assert "quokka" not in json.dumps(row) and (row["open_count"], row["edition"]) == (1, 1)


async def test_open_proposals_are_limited_in_number_and_bytes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.write(proposals.create, ANN, proposal("t", "tea"))
    size = (await database.read(proposals.get, ANN, "t")).open_bytes
    monkeypatch.setattr(proposals, "MAX_OPEN_PROPOSALS", 2)
    monkeypatch.setattr(proposals, "MAX_OPEN_BYTES", size + 10)
    has_room = proposals.has_room
    assert await database.read(has_room, ANN, 1, 10) and await database.read(has_room, BOB, 2, size)
    assert not await database.read(has_room, ANN, 2, 10) and not await database.read(has_room, ANN, 1, 11)
    kept = await database.read(proposals.get, ANN, "t")
    await database.write(proposals.update, ANN, kept.with_operations([kept.operations[0].decided(REFUSED)]))
    assert await database.read(has_room, ANN, 2, size + 10), "what is decided takes no room"


async def test_erasing_a_peer_leaves_proposals_about_a_peer_of_another_case(database: Database) -> None:
    for peer in ("bob", "Bob"):
        target = f"viking://user/ann/peers/{peer}/memories/preferences/Tea.md"
        found = proposal(peer, "tea")
        about = replace(found.operations[0], targets={target: "write"})
        await database.write(proposals.create, ANN, found.with_operations([about]))
    await database.write(derived_data.out_of_proposals, ANN, "bob")
    assert not await database.read(derived_data.is_proposed, ANN, "bob")
    assert await database.read(derived_data.is_proposed, ANN, "Bob")


def test_an_export_may_hold_every_value_that_a_field_may_have() -> None:
    values = [common_pb2.FieldValue(int64_value=value) for value in (-(2**63), 2**63 - 1)]
    largest = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
    values += [common_pb2.FieldValue(float32_value=value) for value in (-largest, largest)]
    for value in values:
        row = json.loads(json_format.MessageToJson(value, preserving_proto_field_name=True))
        assert proposal_rows._Value.model_validate(row).model_dump(exclude_none=True) == row
    for row in ({"int64_value": str(2**63)}, {"float32_value": 3.5e38}):
        with pytest.raises(ValidationError):
            proposal_rows._Value.model_validate(row)


@pytest.mark.parametrize("most", [1, 0])
async def test_where_too_much_waits_already_an_operation_is_left_out_and_never_applied_unseen(
    search: Search, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(proposals, "MAX_OPEN_PROPOSALS", most)
    database = search.database
    plan = Plan(True, (), ("preferences",), (), session_skills=False, review=Review.ALL)
    await talk(database, ANN, "s", "hello")
    await commit(database, ANN, "s", "t", plan=json.dumps(plan.to_json()))
    job = await claim(database)
    store = SimpleNamespace(
        database=database,
        all_spaces=database,
        registry=search.registry,
        embedder=search.embedder,
        relay=search.relay,
    )
    output = Output(
        lease=job.lease,
        output_id="o",
        operations=[write("preferences", topic="Tea", content="Likes it.")],
        summary=common_pb2.Summary(abstract="tea"),
        usage=[],
        extractor=common_pb2.ExtractorInfo(),
        dropped_items=0,
        made=AttemptRecord("{}", pack([]), {}),
    )
    applied = cast(Applied, await Applier(cast(Store, store)).apply(output))
    result: dict[str, Any] = dict(applied.result)
    assert [one["reason"] for one in result["skipped"]] == ([] if most else ["too_many_proposals"])
    assert (result.get("held_for_review", 0), result.get("nothing_applied", False)) == (most, not most)
    rows = await dump(database, ANN)
    assert (len(rows.get("proposals", [])), "memories" in rows) == (most, False)
