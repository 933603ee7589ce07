"""Reactions to turns, over the wire: the user's own and those of machines."""

import asyncio
import json
import math
from typing import Any

import pytest

from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller, failure, said
from tests.support.turn_calls import talk
from tests.support.turns import at, fingerprinted, paged, react

OK, NOT_OK, NEUTRAL = pb.REACTION_OK, pb.REACTION_NOT_OK, pb.REACTION_NEUTRAL


async def listed(caller: Caller, session: str = "", **fields: Any) -> Any:
    return await caller.turns.ListFeedback(pb.ListFeedbackRequest(session=session, **fields))


async def clear(caller: Caller, session: str, turn_id: str) -> bool:
    request = pb.ClearFeedbackRequest(session=session, turn_id=turn_id)
    return bool((await caller.turns.ClearFeedback(request)).cleared)


def counted(answer: Any) -> tuple[int, ...]:
    counts = answer.counts
    return (counts.total, counts.user, counts.machine, counts.ok, counts.not_ok, counts.neutral)


async def turns(caller: Caller, *names: str) -> str:
    session = await caller.session()
    for name in names:
        await talk(caller, session, name, f"asked {name}")
    return session


async def test_the_users_reaction_is_one_for_a_turn(caller: Caller) -> None:
    session = await caller.session()
    await fingerprinted(caller, session, "t1", "Book a trip")
    first = await react(caller, session, "t1", reaction=OK, confidence=0.2, from_turn_id="t9")
    assert (first.confidence, first.from_turn_id, first.objective) == (1.0, "t1", "Book a trip")
    assert first.session == caller.uri(f"sessions/{session}") and first.create_time.seconds and first.feedback_id
    second = await react(caller, session, "t1", text="Too dear\nand late")
    assert second.reaction == pb.REACTION_UNSPECIFIED and second.text == "Too dear\nand late"
    answer = await listed(caller, session)
    assert list(answer.feedback) == [second]
    assert counted(answer) == (1, 1, 0, 0, 0, 1)


async def test_at_every_moment_there_is_one_reaction_of_the_user(caller: Caller) -> None:
    session = await turns(caller, "t1")
    await react(caller, session, "t1", reaction=OK)
    done = asyncio.Event()

    async def watch() -> set[int]:
        seen = set()
        while not done.is_set():
            answer = await listed(caller, session)
            seen |= {len(answer.feedback), answer.counts.total}
        return seen

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(react(caller, session, "t1", reaction=NOT_OK, text=f"{n}") for n in range(30)))
    done.set()
    assert await watching == {1}


async def test_clearing_a_reaction(caller: Caller) -> None:
    session = await turns(caller, "t1")
    await react(caller, session, "t1", reaction=OK)
    machine = await react(caller, session, "t1", machine=True, reaction=OK)
    assert await clear(caller, session, "t1") and not await clear(caller, session, "t1")
    assert list((await listed(caller, session)).feedback) == [machine]
    assert not await clear(caller, session, "t2")
    assert (await failure(clear(caller, "nowhere", "t1"))).resource == ("session", "nowhere")


async def test_reactions_of_machines_add_up(caller: Caller) -> None:
    session = await turns(caller, "t1", "t2")
    made = [
        await react(caller, session, "t1", machine=True, reaction=kind, text=f"{kind}", from_turn_id="t2")
        for kind in (OK, NOT_OK, NEUTRAL, 0)
    ]
    answer = await listed(caller, session)
    assert list(answer.feedback) == made[::-1]
    assert counted(answer) == (4, 0, 4, 1, 1, 2)
    assert made[0].confidence == 0.9 and made[0].from_turn_id == "t2"


async def test_a_turn_takes_a_hundred_reactions_of_machines(caller: Caller) -> None:
    session = await turns(caller, "t1", "t2")
    await asyncio.gather(*(react(caller, session, "t1", machine=True, text=f"{number}") for number in range(100)))
    failed = await failure(react(caller, session, "t1", machine=True))
    assert failed.seen == ("RESOURCE_EXHAUSTED", "TOO_LARGE") and "t1" in failed.message
    await react(caller, session, "t1", reaction=OK)
    await react(caller, session, "t2", machine=True)
    assert counted(await listed(caller, session))[:3] == (102, 1, 101)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"machine": True, "turn_id": "t1", "confidence": 0.69}, "feedback.confidence"),
        ({"machine": True, "turn_id": "t1", "confidence": math.nan}, "feedback.confidence"),
        ({"machine": True, "turn_id": "t1", "text": " \n"}, "feedback.text"),
        ({"turn_id": "", "reaction": OK}, "feedback.turn_id"),
        ({"turn_id": "t1"}, "feedback.reaction"),
        ({"turn_id": "t1", "reaction": OK, "match_queries": [pb.ContextQuery(query="a")]}, "match_queries"),
        ({"machine": True, "turn_id": "t1", "match_queries": [pb.ContextQuery(query="a")]}, "match_queries"),
        ({"turn_id": "t1", "reaction": OK, "text": "x" * 1001}, "feedback.text"),
    ],
)
async def test_what_is_refused(caller: Caller, fields: dict[str, Any], path: str) -> None:
    session = await turns(caller, "t1")
    failed = await failure(react(caller, session, **fields))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [path]
    assert not (await listed(caller, session)).counts.total


async def test_a_machine_at_the_least_confidence(caller: Caller) -> None:
    session = await turns(caller, "t1")
    assert (await react(caller, session, "t1", machine=True, confidence=0.7)).confidence == 0.7


async def test_a_turn_that_is_not_there(caller: Caller) -> None:
    session = await turns(caller)
    failed = await failure(react(caller, session, "t1", reaction=OK))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("turn", "t1")
    assert (await failure(react(caller, "nowhere", "t1", reaction=OK))).resource == ("session", "nowhere")


async def test_secrets_are_withheld(caller: Caller) -> None:
    session = await turns(caller, "t1")
    token = "ghp_" + "a1B2" * 10
    stored = await react(caller, session, "t1", text=f"My token {token} leaked " + "x" * 900)
    assert token not in str(stored) and "[withheld: token]" in stored.text and len(stored.text) <= 1000
    assert token not in str(await listed(caller, session))


# Targets


async def test_without_a_turn_it_is_about_the_newest_before(caller: Caller) -> None:
    session = await turns(caller, "t1", "t2", "t3")
    assert (await react(caller, session, machine=True, from_turn_id="t3")).turn_id == "t2"
    assert (await react(caller, session, machine=True, from_turn_id="t2")).turn_id == "t1"
    # One that has no messages yet comes after all the others.
    assert (await react(caller, session, machine=True, from_turn_id="t4")).turn_id == "t3"
    assert (await react(caller, session, machine=True)).turn_id == "t3"
    failed = await failure(react(caller, session, machine=True, from_turn_id="t1"))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["feedback.turn_id"]


@pytest.mark.parametrize("committed", [False, True])
async def test_match_queries_find_the_turn(caller: Caller, committed: bool) -> None:
    session = await caller.session()
    await talk(caller, session, "boat", "Find a sailboat", "Here is a sailboat")
    await talk(caller, session, "car", "Find a car", "Here is a car")
    await talk(caller, session, "now", "That sailboat was too small")
    if committed:
        await caller.commit(session)

    async def about(*queries: str) -> str:
        matching = [pb.ContextQuery(query=one) for one in queries]
        return str((await react(caller, session, machine=True, from_turn_id="now", match_queries=matching)).turn_id)

    assert await about("sailboat") == "boat"
    assert await about("elephant", "sailboats") == "boat"
    assert await about("elephant") == "car"
    # A turn that came later cannot be meant.
    await caller.add(session, said("sailboat sailboat", turn="later"))
    assert await about("sailboat") == "boat"


# Lists


async def test_lists_and_counts_by_session_turn_and_period(caller: Caller) -> None:
    session, other = await turns(caller, "t1", "t2", "t3"), await turns(caller, "t1")
    made = [
        await react(caller, session, "t1", reaction=OK),
        await react(caller, session, "t2", machine=True, reaction=NOT_OK),
        await react(caller, other, "t1", reaction=NEUTRAL),
        await react(caller, session, "t3", text="Hm"),
    ]
    newest_first = made[::-1]
    for size in (1, 2, 3, 0):
        request = pb.ListFeedbackRequest(page_size=size)
        assert await paged(caller.turns.ListFeedback, request, "feedback") == newest_first
        request = pb.ListFeedbackRequest(session=session, page_size=size)
        assert await paged(caller.turns.ListFeedback, request, "feedback") == [made[3], made[1], made[0]]
    assert counted(await listed(caller, page_size=1)) == (4, 3, 1, 1, 1, 2)
    assert counted(await listed(caller, session)) == (3, 2, 1, 1, 1, 1)
    some = await listed(caller, session, turn_ids=["t1", "t3", "t9"])
    assert list(some.feedback) == [made[3], made[0]] and some.counts.total == 2
    # From the start on, and before the end.
    period = await listed(caller, start_time=made[1].create_time, end_time=made[3].create_time)
    assert list(period.feedback) == [made[2], made[1]] and period.counts.total == 2
    assert not (await listed(caller, end_time=at(0))).feedback
    failed = await failure(listed(caller, turn_ids=["t1"]))
    assert failed.fields == ["turn_ids"]


async def test_reactions_are_stored_as_json_behind_a_prefix(caller: Caller) -> None:
    session = await turns(caller, "t1")
    stored = await react(caller, session, "t1", reaction=NOT_OK, text='It\'s "late"\nand dear')
    request = pb.ListTurnArtifactsRequest(tags=["artifact:turn.log.reaction", "origin:user"])
    (artifact,) = (await caller.turns.ListTurnArtifacts(request)).artifacts
    prefix, body = artifact.text[: len("[turn.log.reaction]")], artifact.text[len("[turn.log.reaction]") :]
    assert prefix == "[turn.log.reaction]"
    assert json.loads(body) | {"ts": ""} == {
        "feedback_id": stored.feedback_id,
        "turn_id": "t1",
        "reaction": "not_ok",
        "text": 'It\'s "late"\nand dear',
        "origin": "user",
        "confidence": 1.0,
        "from_turn_id": "t1",
        "ts": "",
    }
    assert list(artifact.tags) == ["artifact:turn.log.reaction", "origin:user", "turn:t1"]
    await clear(caller, session, "t1")
    assert not (await caller.turns.ListTurnArtifacts(request)).artifacts
