"""Operations that wait for review: what waits, and what accepting, editing and refusing do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, history_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as work
from runekeep.v1 import proposal_service_pb2 as pb
from runekeep_common import failpoints
from tests.support.callers import Caller, failure, policy, said
from tests.support.changes import put, remove, written
from tests.support.exports import entries, exported, imported, sealed
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, delete, edit, value, write

pytestmark = pytest.mark.postgres_long

Servers = Callable[..., ServerProcess]
ALL, DESTRUCTIVE = common_pb2.REVIEW_MODE_ALL, common_pb2.REVIEW_MODE_DESTRUCTIVE
OPEN, ACCEPTED, REFUSED = pb.DECISION_STATE_OPEN, pb.DECISION_STATE_ACCEPTED, pb.DECISION_STATE_REFUSED
HELD = task_service_pb2.COMMIT_OUTCOME_HELD_FOR_REVIEW


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


def uri(caller: Caller, name: str) -> str:
    return caller.uri(f"memories/preferences/{name}.md")


def like(name: str, content: str, **more: Any) -> work.MemoryOperation:
    return write("preferences", topic=name, content=content, **more)


async def proposed(caller: Caller, *operations: work.MemoryOperation, review: int = ALL, session: str = "") -> str:
    """The task of a commit of two messages with these operations."""
    committed = await caller.committed(
        said("tea, please", id="m1"), said("really", id="m2"), policy=policy(review=review), session=session
    )
    async with Worker(caller.channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations)
        assert verdict.outcome == work.JOB_OUTCOME_APPLIED, verdict
    return str(committed.task_id)


async def accept(caller: Caller, task_id: str, *numbers: int, **more: Any) -> pb.AcceptProposalResponse:
    request = pb.AcceptProposalRequest(task_id=task_id, numbers=numbers, **more)
    answer: pb.AcceptProposalResponse = await caller.proposals.AcceptProposal(request)
    return answer


async def refuse(caller: Caller, task_id: str, *numbers: int) -> pb.RefuseProposalResponse:
    request = pb.RefuseProposalRequest(task_id=task_id, numbers=numbers)
    answer: pb.RefuseProposalResponse = await caller.proposals.RefuseProposal(request)
    return answer


def edited(caller: Caller, task_id: str, number: int, **fields: Any) -> Any:
    values = {name: value(of) for name, of in fields.items()}
    return caller.proposals.EditProposal(pb.EditProposalRequest(task_id=task_id, number=number, fields=values))


async def listed(caller: Caller, **more: Any) -> list[str]:
    found = await caller.proposals.ListProposals(pb.ListProposalsRequest(**more))
    return [one.task_id for one in found.proposals]


async def likes(caller: Caller) -> dict[str, str]:
    """The content of each preference."""
    entries = (await caller.listing(caller.uri("memories/preferences"))).entries
    names = [entry.name.removesuffix(".md") for entry in entries if entry.memory_type]
    return {name: (await caller.memory(uri(caller, name))).content for name in names}


async def have(caller: Caller, **contents: str) -> None:
    changes = [put("preferences", topic=topic, content=content) for topic, content in contents.items()]
    await written(caller, *changes)


async def test_a_commit_under_review_changes_nothing_until_it_is_accepted_as_one_revision(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await have(caller, Tea="Likes green tea.")
    session = await caller.session(policy(review=ALL))
    task_id = await proposed(
        caller,
        edit(uri(caller, "Tea"), content=[("green", "black")], ranges=[(1, 1)], reason="said so"),
        like("Bread", "Likes rye."),
        session=session,
    )

    task = await caller.task(task_id)
    assert (task.state, task.result.outcome) == (task_service_pb2.TASK_STATE_COMPLETED, HELD)
    assert (task.result.held_for_review, task.result.total_adds, task.result.total_updates) == (2, 0, 0)
    assert task.result.counts_by_type["preferences"].held == 2
    assert await likes(caller) == {"Tea": "Likes green tea."}
    shown = await caller.proposal(task_id)
    tea, bread = shown.operations
    assert (tea.action, tea.reason, tea.removes, bread.removes) == (pb.PROPOSED_ACTION_EDIT, "said so", True, False)
    assert ("green" in tea.changes[0].before, "black" in tea.changes[0].after) == (True, True)
    assert (bread.changes[0].before, "rye" in bread.changes[0].after) == ("", True)
    assert await listed(caller) == await listed(caller, session=session) == [task_id]
    assert shown.proposal.expire_time.seconds > shown.proposal.create_time.seconds

    newest = shown.newest_revision
    moved = await failure(accept(caller, task_id, expected_revision=newest - 1))
    assert moved.seen == ("ABORTED", "VERSION_MISMATCH")
    done = await accept(caller, task_id, expected_revision=newest, request_id="r")
    assert (done.revision, list(done.accepted), list(done.not_applied)) == (newest + 1, [1, 2], [])
    assert await likes(caller) == {"Tea": "Likes black tea.", "Bread": "Likes rye."}
    assert (await caller.memory(uri(caller, "Tea"))).sources[-1].message_id == "m1"
    listing = await caller.history.ListRevisions(history_service_pb2.ListRevisionsRequest(page_size=1))
    made = listing.revisions[0]
    assert (made.number, made.origin) == (done.revision, history_service_pb2.REVISION_ORIGIN_PROPOSAL)
    assert (made.adds, made.updates, made.archive_uri) == (1, 1, shown.proposal.archive_uri)

    assert await accept(caller, task_id, expected_revision=newest, request_id="r") == done, "the same call"
    again = await accept(caller, task_id, 1, 2)
    assert (again.revision, list(again.accepted)) == (0, [1, 2]), "decided already"
    assert await listed(caller) == [] and await listed(caller, include_decided=True) == [task_id]
    rollback = history_service_pb2.RollbackRevisionRequest(revision=done.revision)
    await caller.history.RollbackRevision(rollback)
    assert await likes(caller) == {"Tea": "Likes green tea."}


async def test_only_what_takes_something_away_waits_and_what_builds_on_it(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await have(caller, Tea="Likes green tea.", Bread="Likes rye.", Jam="Likes plums.", Rice="Likes it.")
    task_id = await proposed(
        caller,
        edit(uri(caller, "Tea"), content=[("green tea.", "green tea. No sugar.")]),
        edit(uri(caller, "Bread"), content=[("rye", "wheat")]),
        delete(uri(caller, "Jam")),
        like("Cake", "Likes it sweet."),
        edit(uri(caller, "Bread"), content=[("wheat.", "wheat. Toasted.")]),
        review=DESTRUCTIVE,
    )
    result = (await caller.task(task_id)).result
    assert (result.outcome, result.held_for_review, result.total_adds, result.total_updates) == (HELD, 3, 1, 1)
    assert await likes(caller) == {
        "Tea": "Likes green tea. No sugar.",
        "Bread": "Likes rye.",
        "Jam": "Likes plums.",
        "Rice": "Likes it.",
        "Cake": "Likes it sweet.",
    }
    shown = (await caller.proposal(task_id)).operations
    assert [(one.number, one.action, one.removes) for one in shown] == [
        (1, pb.PROPOSED_ACTION_EDIT, True),
        (2, pb.PROPOSED_ACTION_DELETE, True),
        (3, pb.PROPOSED_ACTION_EDIT, False),
    ]
    await accept(caller, task_id)
    assert await likes(caller) == {
        "Tea": "Likes green tea. No sugar.",
        "Bread": "Likes wheat. Toasted.",
        "Rice": "Likes it.",
        "Cake": "Likes it sweet.",
    }


async def test_what_is_refused_beside_what_waits_is_not_applied_in_its_place(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """The second value of a field is refused because of the first. Without that one, which waits, it would be valid."""
    await have(caller, Tea="Likes green tea.")
    operations = [edit(uri(caller, "Tea"), content=text) for text in ("Likes black tea.", "Likes cake.")]
    committed = await caller.committed(policy=policy(review=DESTRUCTIVE))
    async with Worker(caller.channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.deliver(lease, *operations)).outcome == work.JOB_OUTCOME_NEEDS_REPAIR
        assert (await worker.deliver(lease, *operations)).outcome == work.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    assert [one.reason for one in result.rejected] == ["given_twice"]
    assert (result.outcome, result.held_for_review) == (task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED, 1)
    assert await likes(caller) == {"Tea": "Likes green tea."}


async def test_parts_are_accepted_and_refused_and_a_refused_text_is_nowhere(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    task_id = await proposed(caller, like("Bread", "Likes rye."), like("Xylophone", "Plays it."), like("Jam", "Plums."))
    assert (await accept(caller, task_id, 1)).accepted == [1]
    left = (await refuse(caller, task_id, 2)).proposal
    assert (left.open_operations, left.total_operations) == (1, 3)
    shown = await caller.proposal(task_id)
    assert [one.state for one in shown.operations] == [ACCEPTED, REFUSED, OPEN]
    assert "Xylophone" not in str(shown) and "rye" not in str(shown) and "Plums" in str(shown)
    assert await likes(caller) == {"Bread": "Likes rye."}

    for call in (accept(caller, task_id, 3, 2), refuse(caller, task_id, 1)):
        assert (await failure(call)).seen == ("FAILED_PRECONDITION", "PROPOSAL_DECIDED")
    assert (await failure(edited(caller, task_id, 2, content="x"))).seen == ("FAILED_PRECONDITION", "PROPOSAL_DECIDED")
    assert (await failure(accept(caller, task_id, 4))).seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert (await failure(accept(caller, "none"))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    assert (await refuse(caller, task_id, 2)).proposal == left, "refused already"
    assert (await refuse(caller, task_id)).proposal.open_operations == 0
    assert await likes(caller) == {"Bread": "Likes rye."}


def _stale(caller: Caller) -> dict[str, tuple[work.MemoryOperation, Any, str, str | None]]:
    """By what is tried: the operation on Tea, what happens before it is accepted, why it stays open, and what Tea is
    in the end."""
    tea = uri(caller, "Tea")
    appended = put("preferences", 1, topic="Tea", content="Likes green tea. No sugar.")
    replaced = put("preferences", 1, topic="Tea", content="Likes coffee.")
    gone = remove(tea, 1)
    return {
        "a patch of text that is there still": (
            edit(tea, content=[("green", "black")]), appended, "", "Likes black tea. No sugar.",
        ),
        "a patch of text that is gone": (
            edit(tea, content=[("green", "black")]), replaced, "patch_not_applicable", "Likes coffee.",
        ),
        "a whole value over another": (edit(tea, content="Likes mate."), replaced, "changed_since", "Likes coffee."),
        "a write over another value": (like("Tea", "Likes mate."), replaced, "changed_since", "Likes coffee."),
        "a whole value that is there by now": (edit(tea, content="Likes coffee."), replaced, "", "Likes coffee."),
        "a delete of something new": (delete(tea), appended, "changed_since", "Likes green tea. No sugar."),
        "an edit of what is deleted": (edit(tea, content=[("green", "black")]), gone, "not_found", None),
        "a write of what is deleted": (like("Tea", "Likes mate."), gone, "changed_since", None),
        "a delete of what is deleted": (delete(tea), gone, "", None),
        "nothing happened": (delete(tea), None, "", None),
    }  # fmt: skip


STALE = list(_stale(Caller(grpc.aio.insecure_channel("nowhere.test:1"), "x")))


@pytest.mark.parametrize("tried", STALE)
async def test_what_no_longer_fits_stays_open_with_the_reason(
    caller: Caller, channel: grpc.aio.Channel, tried: str
) -> None:
    operation, happens, reason, content = _stale(caller)[tried]
    await have(caller, Tea="Likes green tea.")
    task_id = await proposed(caller, operation, like("Bread", "Likes rye."))
    if happens is not None:
        await written(caller, happens)

    seen = (await caller.proposal(task_id)).operations[0]
    is_done = tried in ("a whole value that is there by now", "a delete of what is deleted")
    assert (seen.problem.reason, bool(seen.changes)) == (reason, not reason and not is_done)
    assert list(seen.uris) == [uri(caller, "Tea")]
    done = await accept(caller, task_id)
    assert [(one.number, one.reason) for one in done.not_applied] == ([(1, reason)] if reason else [])
    assert list(done.accepted) == ([2] if reason else [1, 2])
    assert await likes(caller) == {"Bread": "Likes rye.", **({"Tea": content} if content is not None else {})}


def lesson(name: str, supersedes: str = "") -> work.MemoryOperation:
    fields = {"supersedes": supersedes} if supersedes else {}
    return write("experiences", experience_name=name, content=f"{name}.", **fields)


async def test_an_operation_deletes_only_what_it_was_shown_to_delete(caller: Caller, channel: grpc.aio.Channel) -> None:
    late, early = (caller.uri(f"memories/experiences/Check {name}.md") for name in ("late", "early"))
    await proposed(caller, lesson("Check late"), review=0)
    task_id = await proposed(
        caller,
        edit(late, content="Check late, twice."),
        lesson("Check once", "Check late"),
        lesson("Check now", "Check early"),
    )

    first, second, third = (await caller.proposal(task_id)).operations
    assert (first.problem.reason, second.problem.reason) == ("", "written_then_deleted")
    assert list(second.changes) == [] and late in second.uris
    assert [one.uri for one in third.changes] == [caller.uri("memories/experiences/Check now.md")]
    done = await accept(caller, task_id, 2)
    assert [(one.number, one.reason) for one in done.not_applied] == [(2, "written_then_deleted")]
    assert (await caller.memory(late)).version == 1
    await proposed(caller, lesson("Check early"), review=0)
    assert [one.reason for one in (await accept(caller, task_id, 3)).not_applied] == ["changed_since"]
    assert (await caller.memory(early)).version == 1

    await accept(caller, task_id, 1)
    shown = (await caller.proposal(task_id)).operations[1]
    assert [(one.uri, bool(one.after)) for one in shown.changes if one.before] == [(late, False)]
    assert list((await accept(caller, task_id, 2)).accepted) == [2]
    assert (await failure(caller.memory(late))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")


async def test_what_earlier_operations_of_a_proposal_changed_is_no_change_by_others(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await have(caller, Tea="Likes green tea.", Jam="Likes plums.")
    tea, jam = uri(caller, "Tea"), uri(caller, "Jam")
    task_id = await proposed(caller, delete(tea), like("Tea", "Likes mate."), delete(jam), like("Jam", "Likes figs."))
    assert list((await accept(caller, task_id, 1)).accepted) == [1]
    assert list((await accept(caller, task_id, 2)).accepted) == [2]
    # The other way round, the delete would take away what was just accepted.
    assert list((await accept(caller, task_id, 4)).accepted) == [4]
    (problem,) = (await accept(caller, task_id, 3)).not_applied
    assert problem.reason == "changed_since" and "edit" not in problem.message and "viking:" not in problem.message
    assert await likes(caller) == {"Tea": "Likes mate.", "Jam": "Likes figs."}


async def test_of_two_proposals_on_one_memory_the_second_is_edited_to_what_is_right_now(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await have(caller, Tea="Likes green tea.")
    first = await proposed(caller, edit(uri(caller, "Tea"), content="Likes black tea."))
    second = await proposed(caller, edit(uri(caller, "Tea"), content="Likes white tea."))
    assert await listed(caller) == [second, first]
    await accept(caller, first)
    assert [one.reason for one in (await accept(caller, second)).not_applied] == ["changed_since"]
    assert await likes(caller) == {"Tea": "Likes black tea."}

    await edited(caller, second, 1, content="Likes black tea and white tea.")
    shown = (await caller.proposal(second)).operations[0]
    assert shown.edited and not shown.HasField("problem") and "black tea and" in shown.changes[0].after
    assert (await accept(caller, second)).accepted == [1]
    assert await likes(caller) == {"Tea": "Likes black tea and white tea."}


async def test_an_edit_that_cannot_be_applied_is_refused_and_changes_nothing(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await have(caller, Jam="Likes plums.")
    task_id = await proposed(caller, like("Tea", "Likes tea."), delete(uri(caller, "Jam")))
    before = await caller.proposal(task_id)
    key = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA" * 3
    for number, fields in ((1, {"colour": "red"}), (1, {"content": f"The key is {key}"}), (2, {"content": "x"})):
        refused = await failure(edited(caller, task_id, number, **fields))
        assert refused.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and key not in refused.message
    assert await caller.proposal(task_id) == before


async def test_operations_that_are_too_long_for_an_answer_say_so_and_what_they_are_about(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    names = [f"Tea {number}" for number in range(6)]
    for name in names:
        await have(caller, **{name: "Likes green tea. " + "Really. " * 50_000})
    task_id = await proposed(caller, *[edit(uri(caller, name), content=[("green", "black")]) for name in names])
    answer = await caller.proposal(task_id)
    shown = [one.number for one in answer.operations if not one.texts_omitted]
    assert answer.texts_omitted and 0 < len(shown) < 6
    for one in answer.operations:
        assert list(one.uris) == [uri(caller, names[one.number - 1])] and not one.HasField("problem")
        assert bool(one.changes) == bool(one.given) == (one.number in shown)
    await refuse(caller, task_id, *shown)
    assert not (await caller.proposal(task_id)).operations[len(shown)].texts_omitted


async def test_a_memory_type_can_ask_for_review(own_server: Servers, tmp_path: Path) -> None:
    types = tmp_path / "types"
    types.mkdir()
    (types / "rules.yaml").write_text(
        'name: rules\ndescription: Rules.\ndirectory: "viking://user/{user_space}/memories/rules"\n'
        'filename_template: "{name}.md"\nreview: all\nfields:\n'
        "  - {name: name, description: Which one., merge_op: immutable}\n  - {name: content, description: What.}\n"
    )
    server = own_server({"RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "ann")
        task_id = await proposed(caller, write("rules", name="a", content="b"), like("Tea", "Likes it."), review=0)
        assert (await caller.task(task_id)).result.held_for_review == 1
        assert await likes(caller) == {"Tea": "Likes it."}
        assert [one.memory_type for one in (await caller.proposal(task_id)).operations] == ["rules"]


@pytest.mark.parametrize("where", [failpoints.APPLY_MID_OPERATIONS, failpoints.PROPOSAL_AFTER_COMMIT])
async def test_a_server_killed_while_it_accepts_neither_loses_nor_doubles_anything(
    own_server: Servers, fresh_store: dict[str, str], tmp_path: Path, where: str
) -> None:
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        task_id = await proposed(caller, like("Tea", "Likes it."), like("Bread", "Likes rye."))
    process.stop()
    log = tmp_path / "fired"
    process = own_server({**fresh_store, "RUNEKEEP_FAILPOINT": f"{where}:KILL", "RUNEKEEP_FAILPOINT_LOG": str(log)})
    async with grpc.aio.insecure_channel(process.address) as channel:
        failed = await failure(accept(Caller(channel, "ann"), task_id, request_id="r"))
        assert failed.code is grpc.StatusCode.UNAVAILABLE
    assert log.read_text().startswith(where)
    process.discard()
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        is_applied = where == failpoints.PROPOSAL_AFTER_COMMIT
        assert await likes(caller) == ({"Tea": "Likes it.", "Bread": "Likes rye."} if is_applied else {})
        assert (await caller.proposal(task_id)).proposal.open_operations == (0 if is_applied else 2)
        done = await accept(caller, task_id, request_id="r")
        assert (done.revision, list(done.accepted)) == (2, [1, 2])
        assert {one: (await caller.memory(uri(caller, one))).version for one in await likes(caller)} == {
            "Tea": 1,
            "Bread": 1,
        }
    process.stop()


async def test_a_deleted_session_takes_its_proposals_along(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session(policy(review=ALL))
    task_id = await proposed(caller, like("Tea", "Likes it."), session=session)
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    assert await listed(caller, include_decided=True) == []
    assert (await failure(accept(caller, task_id))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    assert await likes(caller) == {}


async def test_a_proposal_moves_to_another_user_and_is_accepted_there(
    callers: Callable[..., Caller], channel: grpc.aio.Channel
) -> None:
    ann, bob = callers(), callers()
    await have(ann, Tea="Likes green tea.", Jam="Likes plums.")
    tea = edit("viking://user/memories/preferences/Tea.md", content=[("green", "black")])
    task_id = await proposed(ann, tea, delete(uri(ann, "Jam")), like("Bread", "Likes rye."), like("Cake", "No."))
    await refuse(ann, task_id, 4)
    archive = await exported(ann)
    await imported(bob, archive)
    (moved,) = await listed(bob)
    shown = await bob.proposal(moved)
    assert [one.state for one in shown.operations] == [OPEN, OPEN, OPEN, REFUSED]
    assert [one.changes[0].uri for one in shown.operations[:3]] == [uri(bob, one) for one in ("Tea", "Jam", "Bread")]
    assert list((await accept(bob, moved)).accepted) == [1, 2, 3]
    assert await likes(bob) == {"Tea": "Likes black tea.", "Bread": "Likes rye."}

    # An export of before there were proposals.
    cat = callers()
    older = {name: entry for name, entry in entries(archive).items() if name != "data/proposals.jsonl"}
    await imported(cat, sealed(older.items()))
    assert await listed(cat, include_decided=True) == []
