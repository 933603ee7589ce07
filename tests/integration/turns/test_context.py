"""LoadTurnContext and SetTurnSelection, over the wire: who is shown what, and what may be chosen of it."""

import base64
import json
from typing import Any

import pytest

from runekeep.v1 import common_pb2, session_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller, failure, said, used_tool
from tests.support.turn_calls import submit, talk
from tests.support.turns import at, fingerprint, fingerprinted, load, react, select, signal

AUDIENCES = ("gate", "reconciler", "downstream", "final_answer")


async def conversation(caller: Caller, turns: int, session_id: str = "") -> str:
    """A session of turns t01, t02 and on, each with a fingerprint and an assistant signal."""
    session = await caller.session(session_id=session_id)
    for number in range(1, turns + 1):
        name = f"t{number:02}"
        await talk(caller, session, name, f"asked {name}", f"answered {name}")
        promoted = [signal("hotel", f"Ritz {name}", "recommend")]
        await submit(caller, session, name, fingerprint=fingerprint(f"wants {name}", assistant_signals=promoted))
    return session


def memories(answer: Any) -> list[str]:
    return [one.turn_id for one in answer.turn_memories]


def offered(answer: Any) -> list[str]:
    return [one.turn.turn_id for one in answer.candidates]


def numbered(*numbers: int) -> list[str]:
    return [f"t{number:02}" for number in numbers]


def query(text: str, where: str = "unspecified") -> pb.ContextQuery:
    return pb.ContextQuery(query=text, target=pb.ContextQueryTarget.Value(f"CONTEXT_QUERY_TARGET_{where.upper()}"))


async def matched(
    caller: Caller, session: str, *queries: pb.ContextQuery, current: str = "now"
) -> dict[str, list[str]]:
    """Turns that the queries find, with what found them; last turns are left out."""
    answer = await load(caller, session, current, last_turns=1, ctx_retrieval_queries=queries)
    assert not answer.unanswered_queries
    return {one.turn.turn_id: list(one.matched_queries) for one in answer.candidates if one.matched_queries}


# Who is shown what


async def test_before_anything_was_chosen_all_that_is_new_is_shown(caller: Caller) -> None:
    session = await conversation(caller, 30)
    for audience in AUDIENCES:
        answer = await load(caller, session, "t30", audience)
        # The delta window, newest 25, holds the last turns and the current one.
        assert memories(answer) == numbered(*range(30, 5, -1)), audience
        assert answer.delta_count == 30 and not answer.HasField("selection")
        assert offered(answer) == ([] if audience == "final_answer" else numbered(29, 28, 27))
        assert answer.current.turn.turn_id == "t30"
        assert bool(answer.assistant_signals) == (audience == "final_answer")


async def test_last_turns_are_those_before_the_current_one(caller: Caller) -> None:
    session = await conversation(caller, 6)
    answer = await load(caller, session, "t04", last_turns=2)
    assert offered(answer) == numbered(3, 2) and all(one.recent for one in answer.candidates)
    # One that has no messages yet comes after all the others.
    answer = await load(caller, session, "t07", last_turns=20)
    assert offered(answer) == numbered(6, 5, 4, 3, 2, 1)
    assert answer.current.turn.turn_id == "t07" and not answer.current.turn.HasField("start_time")
    assert answer.current.compressed_view == ""


async def test_nobody_but_the_final_answer_sees_assistant_signals(caller: Caller) -> None:
    session, other = await conversation(caller, 3), await caller.session()
    await fingerprinted(caller, other, "x1", "elsewhere", assistant_signals=[signal("car", "Fiat", "strong_promote")])
    await fingerprinted(caller, other, "x2", "nothing promoted")
    for audience in AUDIENCES:
        answer = await load(caller, session, "t03", audience, render=True)
        found = [(one.session.rpartition("/")[2], one.turn_id) for one in answer.assistant_signals]
        if audience == "final_answer":
            assert found == [(other, "x1"), (session, "t03"), (session, "t02"), (session, "t01")]
            assert [one.key for one in answer.assistant_signals[0].signals] == ["car"]
            assert "Fiat" in answer.text and "Ritz t01" in answer.text
            del answer.assistant_signals[:]
            answer.ClearField("text")
            answer.ClearField("sections")
        assert "Ritz" not in str(answer) and "Fiat" not in str(answer), audience


async def test_of_what_was_chosen_each_audience_sees_its_part(caller: Caller) -> None:
    session = await conversation(caller, 12)
    before = await load(caller, session, "t12", "reconciler", last_turns=20)
    chosen = await select(
        caller,
        session,
        before.offer,
        local_memories_turn_ids=numbered(2),
        turn_ids=numbered(4, 7),
        current_turn_id="t12",
    )
    assert not chosen.dropped and chosen.selection.last_reconciled_time.seconds
    gate = await load(caller, session, "t12", "gate")
    assert memories(gate) == numbered(12, 11, 10, 9) and gate.delta_count == 0
    assert gate.selection == chosen.selection
    downstream = await load(caller, session, "t12", "downstream")
    assert memories(downstream) == numbered(12, 2)
    assert offered(downstream) == numbered(11, 10, 9, 7, 4)
    assert [one.selected for one in downstream.candidates] == [False, False, False, True, True]
    assert not any(one.turn.HasField("fingerprint") for one in downstream.candidates)
    final = await load(caller, session, "t12", "final_answer")
    assert memories(final) == numbered(12, 2) and offered(final) == []
    # What changed since then is shown to those who choose, and to nobody else.
    await submit(caller, session, "t01", fingerprint=fingerprint(topics=["late"]))
    gate = await load(caller, session, "t12", "gate")
    assert memories(gate) == numbered(12, 11, 10, 9, 1) and gate.delta_count == 1
    assert memories(await load(caller, session, "t12", "downstream")) == numbered(12, 2)


async def test_the_two_lists_select_each_its_own(caller: Caller) -> None:
    session = await conversation(caller, 12)
    await select(caller, session, local_memories_turn_ids=numbered(2))
    by_memories = await load(caller, session, "t12", "downstream")
    assert memories(by_memories) == numbered(12, 2) and offered(by_memories) == numbered(11, 10, 9)
    await select(caller, session, turn_ids=numbered(*range(1, 11)))
    by_turns = await load(caller, session, "t12", "downstream")
    assert memories(by_turns) == numbered(12)
    # Of the ten that are kept the first eight are shown, beside the last three.
    assert offered(by_turns) == numbered(11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)


async def test_the_header_of_the_final_answer_says_selected_only_of_a_stored_selection(caller: Caller) -> None:
    session = await conversation(caller, 2)

    async def header() -> str:
        answer = await load(caller, session, "t02", "final_answer", render=True)
        return answer.sections[0].header

    assert await header() == "[TURN MEMORIES — CHRONOLOGICAL (scope=conversation)]"
    await select(caller, session)
    assert await header() == "[TURN MEMORIES — CHRONOLOGICAL (selected; scope=conversation)]"


async def test_nothing_chosen_is_not_the_same_as_nothing_ever_chosen(caller: Caller) -> None:
    session = await conversation(caller, 5)
    assert memories(await load(caller, session, "t05", "downstream")) == numbered(5, 4, 3, 2, 1)
    await select(caller, session, local_memories_turn_ids=numbered(3))
    assert memories(await load(caller, session, "t05", "downstream")) == numbered(5, 3)
    await select(caller, session)
    answer = await load(caller, session, "t05", "downstream")
    assert memories(answer) == numbered(5) and answer.HasField("selection")
    assert memories(await load(caller, session, "t05", "final_answer")) == numbered(5)


async def test_a_repeated_fingerprint_is_no_change(caller: Caller) -> None:
    session = await conversation(caller, 5)
    await select(caller, session)
    await submit(caller, session, "t01", fingerprint=fingerprint("wants t01"))
    assert (await load(caller, session, "t05")).delta_count == 0


async def test_what_changes_after_an_offer_is_in_the_next_window(caller: Caller) -> None:
    session = await conversation(caller, 6)
    before = await load(caller, session, "t06", "reconciler")
    await submit(caller, session, "t01", fingerprint=fingerprint(topics=["late"]))
    await select(caller, session, before.offer, turn_ids=numbered(5))
    answer = await load(caller, session, "t06")
    assert answer.delta_count == 1 and memories(answer) == numbered(6, 5, 4, 3, 1)


async def test_feedback_is_shown_to_all_whatever_was_chosen(caller: Caller) -> None:
    session = await conversation(caller, 5)
    await react(caller, session, "t02", reaction=pb.REACTION_NOT_OK, text="Too dear")
    await react(caller, session, "t03", machine=True, from_turn_id="t04", reaction=pb.REACTION_OK)
    await select(caller, session)
    for audience in AUDIENCES:
        answer = await load(caller, session, "t05", audience)
        assert [(one.turn_id, one.objective) for one in answer.feedback] == [("t03", "wants t03"), ("t02", "wants t02")]


# Text


async def test_the_text_of_a_gate(caller: Caller) -> None:
    session = await caller.session()
    times = iter(range(1_769_332_500, 1_769_400_000, 3600))

    async def spoken(turn_id: str, *messages: common_pb2.Message) -> None:
        for message in messages:
            message.turn_id = turn_id
            message.create_time.CopyFrom(at(next(times)))
        await caller.add(session, *messages)

    image = common_pb2.Part(image=common_pb2.ImagePart(url="https://example.org/a/map.png"))
    asked = said("Find a hotel\n[TURN MEMORIES]")
    asked.parts.append(image)
    await spoken("t1", asked, used_tool("c1", "found", name="search"))
    await submit(
        caller,
        session,
        "t1",
        fingerprint=fingerprint(
            "Find a hotel",
            topics=["travel"],
            assertions=[signal("budget.cap", 500, "must", "objective", "trip")],
            assistant_signals=[signal("hotel", "Ritz")],
        ),
        summary=pb.TurnSummary(done=["searched", "listed"], risks=["sold out"]),
    )
    await spoken("t2", said("Book it"))
    answer = await load(caller, session, "t2", render=True)
    assert answer.text == (
        "[CURRENT TURN]\n"
        "[TURN turn_id=t2] / 11:15 Jan 25 2026 / user: Book it\n"
        "\n"
        "[PRIOR TURNS (newest->oldest) - COMPRESSED VIEWS]\n"
        "[TURN turn_id=t1] / 09:15 Jan 25 2026 / user: Find a hotel [TURN MEMORIES] | attachments: image map.png"
        " | objective: Find a hotel | answer: tool search (completed) | done: searched; listed | risks: sold out\n"
        "\n"
        "[TURNS CANDIDATES TABLE]\n"
        "- t1 (09:15 Jan 25 2026) | recent_turn | objective: Find a hotel\n"
        "\n"
        "[TURN MEMORIES — CHRONOLOGICAL (newest->oldest; scope=conversation)]\n"
        "- t1 (09:15 Jan 25 2026) objective=Find a hotel;"
        " A=['budget.cap=500 (must, scope=objective, applies_to=trip)']; E=[]; F=[]; topics=['travel']"
    )
    assert "\n\n".join(one.text for one in answer.sections) == answer.text
    assert [one.text.split("\n")[0] for one in answer.sections] == [one.header for one in answer.sections]
    assert answer.candidates[0].compressed_view in answer.text
    bare = await load(caller, session, "t2")
    assert bare.text == "" and not bare.sections and bare.candidates == answer.candidates


async def test_a_context_of_a_session_without_turns(caller: Caller) -> None:
    session = await caller.session()
    answer = await load(caller, session, "t1", render=True)
    assert answer.text == "[PRIOR TURNS (newest->oldest) - COMPRESSED VIEWS]"
    assert (await load(caller, session, "t1", "final_answer", render=True)).text == ""
    failed = await failure(load(caller, "nowhere", "t1"))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("session", "nowhere")
    failed = await failure(load(caller, "nowhere", "t1", ctx_retrieval_queries=[query("tea")]))
    assert failed.resource == ("session", "nowhere")


# Context queries


async def test_a_turn_is_found_before_any_commit_and_after_it(caller: Caller) -> None:
    session = await conversation(caller, 3)
    await talk(caller, session, "boat", "I want to rent a sailboat in Greece")
    await talk(caller, session, "last", "Never mind")
    for committed in (False, True):
        if committed:
            await caller.commit(session, keep_recent_count=1)
        found = await matched(caller, session, query("sailboats"), query("Greece"))
        assert found == {"boat": ["sailboats", "Greece"]}, committed
    # And when the index has got it.
    await caller.searchable()
    assert await matched(caller, session, query("sailboats"), query("Greece")) == {"boat": ["sailboats", "Greece"]}
    assert await matched(caller, session, query("sailboats"), current="boat") == {}


async def test_what_was_found_is_a_candidate_with_its_memory(caller: Caller) -> None:
    session = await conversation(caller, 2)
    await fingerprinted(caller, session, "boat", "rent a sailboat")
    for number in range(3, 7):
        await fingerprinted(caller, session, f"t{number:02}", "chat")
    await select(caller, session)
    answer = await load(caller, session, "now", "gate", ctx_retrieval_queries=[query("sailboat")], render=True)
    assert offered(answer) == [*numbered(6, 5, 4), "boat"] and memories(answer) == [*numbered(6, 5, 4), "boat"]
    (found,) = (one for one in answer.candidates if one.matched_queries)
    assert found.score > 0 and not found.recent and not found.selected
    assert "| context_hit: sailboat | objective: rent a sailboat" in answer.text
    chosen = await select(caller, session, answer.offer, local_memories_turn_ids=["boat"])
    assert list(chosen.selection.local_memories_turn_ids) == ["boat"]


@pytest.mark.parametrize("committed", [False, True])
async def test_where_a_query_looks(caller: Caller, committed: bool) -> None:
    session = await caller.session()
    await caller.add(session, said("tangerines", turn="asked"))
    await caller.add(session, said("tangerines", role=common_pb2.ROLE_ASSISTANT, turn="answered"))
    made = used_tool("c1", "tangerines")
    made.turn_id = "made"
    await caller.add(session, made, said("tangerines"), said("good bye", turn="last"))
    if committed:
        await caller.commit(session)
        await caller.searchable()
    for where, found in {
        "unspecified": {"asked", "answered", "made"},
        "user": {"asked"},
        "assistant": {"answered", "made"},
        "assistant_artifact": {"made"},
    }.items():
        assert set(await matched(caller, session, query("tangerine", where))) == found, where


async def test_queries_look_in_their_own_session_alone(caller: Caller) -> None:
    session, other = await caller.session(session_id="s"), await caller.session(session_id="s-2")
    await talk(caller, session, "here", "We spoke of walnuts")
    await talk(caller, session, "behind", "We spoke of the weather")
    # At other places than in the first session.
    await talk(caller, other, "before", "We spoke of the weather")
    await talk(caller, other, "there", "We spoke of walnuts")
    await caller.commit(other)
    await caller.commit(session)
    await caller.searchable()
    assert set(await matched(caller, session, query("walnuts"))) == {"here"}
    assert set(await matched(caller, other, query("walnuts"))) == {"there"}


async def test_a_query_finds_five_turns_before_the_current_one(caller: Caller) -> None:
    session = await caller.session()
    for number in range(1, 8):
        await talk(caller, session, f"t{number:02}", "walnuts" + " and more" * (8 - number))
    await talk(caller, session, "t08", "walnuts walnuts")
    await talk(caller, session, "t09", "walnuts")
    # The best ones, the shortest here; the current turn takes the place of none.
    assert set(await matched(caller, session, query("walnuts"), current="t09")) == set(numbered(8, 7, 6, 5, 4))
    # What came later is no earlier turn.
    assert not set(await matched(caller, session, query("walnuts"), current="t04")) & set(numbered(5, 6, 7, 8, 9))


# Choosing


async def test_ids_that_were_not_offered_are_dropped(caller: Caller) -> None:
    session = await caller.session()
    for name in ("abc1", "abc2", "b1", "c1", "d1", "e1", "f1"):
        await fingerprinted(caller, session, name, name)
    chosen = await select(
        caller,
        session,
        local_memories_turn_ids=["e1", "abc1", "abc", "b", "x", "b1", "c1", "d1", "f1"],
        turn_ids=["abc2", ""],
        memory_bucket_ids=["obj-1"],
        current_turn_id="now",
    )
    assert list(chosen.selection.local_memories_turn_ids) == ["e1", "abc1", "b1", "c1", "d1"]
    assert list(chosen.selection.turn_ids) == ["abc2"] and not chosen.selection.memory_bucket_ids
    assert list(chosen.dropped) == ["abc", "x", "f1", "", "obj-1"]
    assert chosen.selection.current_turn_id == "now"


async def test_an_offer_that_is_none_or_of_another_session(caller: Caller) -> None:
    session, other = await conversation(caller, 2), await conversation(caller, 3)
    offer = (await load(caller, other, "t03")).offer
    for wrong in (offer, "x", "e30=", offer[:-8]):
        failed = await failure(select(caller, session, wrong))
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["offer"]
    assert not (await load(caller, session, "t02")).HasField("selection")


async def test_an_offer_of_a_session_that_was_made_anew(caller: Caller) -> None:
    session = await conversation(caller, 3, session_id="s")
    offer = (await load(caller, session, "t03")).offer
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    await conversation(caller, 1, session_id="s")
    failed = await failure(select(caller, session, offer, turn_ids=numbered(2)))
    assert failed.fields == ["offer"]


async def test_what_is_made_up_in_an_offer_cannot_be_chosen(caller: Caller) -> None:
    session = await conversation(caller, 2)
    body = json.loads(base64.urlsafe_b64decode((await load(caller, session, "t02")).offer))
    forged = [session, ["made-up", "t01"], ["obj-made-up"], 0]
    assert [type(one) for one in body] == [type(one) for one in forged]
    token = base64.urlsafe_b64encode(json.dumps(forged).encode()).decode()
    chosen = await select(caller, session, token, turn_ids=["made-up", "t01"], memory_bucket_ids=["obj-made-up"])
    assert list(chosen.selection.turn_ids) == ["t01"]
    assert list(chosen.dropped) == ["made-up", "obj-made-up"]
