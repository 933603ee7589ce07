"""Turns, their fingerprints, summaries and artifacts, over the wire."""

import json
import time
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from runekeep.v1 import common_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from tests.support.callers import Caller, failure, said
from tests.support.turn_calls import submit, talk, turn_of
from tests.support.turns import at, fingerprint, fingerprinted, paged, signal

SERVER_SETTINGS = {"RUNEKEEP_MAX_OPEN_TURN_TASKS_PER_USER": "2"}


async def artifacts(caller: Caller, *tags: str, session: str = "", page_size: int = 0) -> list[Any]:
    request = pb.ListTurnArtifactsRequest(tags=tags, session=session, page_size=page_size)
    return await paged(caller.turns.ListTurnArtifacts, request, "artifacts")


async def promoted(caller: Caller, *keys: str, session: str = "", page_size: int = 0) -> list[Any]:
    request = pb.ListAssistantSignalsRequest(keys=keys, session=session, page_size=page_size)
    return await paged(caller.turns.ListAssistantSignals, request, "turns")


# Turns


async def test_a_turn_is_the_messages_that_carry_its_id(caller: Caller) -> None:
    session = await caller.session()
    await caller.add(
        session,
        said("hello", turn="t1"),
        said("between"),
        said("hi", role=common_pb2.ROLE_ASSISTANT, turn="t1"),
        said("more", turn="t2"),
    )
    found = await turn_of(caller, session, "t1")
    assert (found.session, found.turn_id) == (caller.uri(f"sessions/{session}"), "t1")
    assert (found.messages.start_sequence, found.messages.end_sequence) == (1, 3)
    assert not found.HasField("fingerprint") and not found.HasField("summary")
    assert found.start_time.seconds and found.end_time.ToNanoseconds() >= found.start_time.ToNanoseconds()
    by_uri = await turn_of(caller, caller.uri(f"sessions/{session}"), "t1")
    assert by_uri == found


async def test_a_turn_or_a_session_that_is_not_there(caller: Caller) -> None:
    session = await caller.session()
    failed = await failure(turn_of(caller, session, "t1"))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("turn", "t1")
    failed = await failure(turn_of(caller, "nowhere", "t1"))
    assert failed.resource == ("session", "nowhere")
    failed = await failure(submit(caller, session, "t1", fingerprint=fingerprint("a")))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("turn", "t1")


async def test_turns_are_listed_newest_first_page_by_page(caller: Caller) -> None:
    session = await caller.session()
    for number in range(1, 6):
        await talk(caller, session, f"t{number}", "hello")
    # A turn goes by its first message.
    await caller.add(session, said("and more", turn="t1"))
    for name in ("t2", "t4"):
        await submit(caller, session, name, fingerprint=fingerprint(name))
    for size in (1, 2, 5, 0):
        request = pb.ListTurnsRequest(session=session, page_size=size)
        found = await paged(caller.turns.ListTurns, request, "turns")
        assert [one.turn_id for one in found] == ["t5", "t4", "t3", "t2", "t1"]
        request = pb.ListTurnsRequest(session=session, page_size=size, fingerprinted_only=True)
        found = await paged(caller.turns.ListTurns, request, "turns")
        assert [(one.turn_id, one.fingerprint.objective) for one in found] == [("t4", "t4"), ("t2", "t2")]
    failed = await failure(caller.turns.ListTurns(pb.ListTurnsRequest(session="nowhere")))
    assert failed.resource == ("session", "nowhere")


# Fingerprints


async def test_a_fingerprint_is_stored_as_it_was_said(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    values = [
        "text",
        5,
        2.5,
        True,
        False,
        None,
        {"min": 1, "max": 9},
        {"max": 9},
        {"options": ["a", 1]},
        {"exclude": []},
    ]
    said_so = fingerprint(
        "Book a trip",
        topics=["travel", "budget"],
        assertions=[signal(f"k{number}", value) for number, value in enumerate([*values, {"rule": "no trains"}])],
        exceptions=[signal("airline", "Foo", scope="objective", applies_to="trip"), signal("b", 1, "do_not")],
        facts=[signal("home", "Bonn"), signal("age", 40, "high", scope="conversation")],
        assistant_signals=[signal("hotel", "Ritz", "strong_promote", scope="artifact"), signal("c", 1, scope="thread")],
        ctx_retrieval_queries=[
            pb.ContextQuery(target=pb.CONTEXT_QUERY_TARGET_USER, query="trips", reason="older ones")
        ],
        made_time=at(1_700_000_000),
        conversation_title="A trip",
    )
    answer = await submit(caller, session, "t1", fingerprint=said_so)
    stored = answer.turn.fingerprint
    assert answer.task_id == "" and await turn_of(caller, session, "t1") == answer.turn
    assert (stored.version, stored.turn_id) == ("v1", "t1")
    # What is not given is the default of its list.
    assert [one.severity for one in stored.assertions] == [pb.SIGNAL_SEVERITY_PREFER] * 11
    assert [one.severity for one in stored.exceptions] == [pb.SIGNAL_SEVERITY_AVOID, pb.SIGNAL_SEVERITY_DO_NOT]
    assert [one.severity for one in stored.facts] == [pb.SIGNAL_SEVERITY_MEDIUM, pb.SIGNAL_SEVERITY_HIGH]
    assert stored.assistant_signals[1].severity == pb.SIGNAL_SEVERITY_MENTION
    for name in ("assertions", "exceptions", "facts", "assistant_signals"):
        for one in getattr(stored, name):
            one.ClearField("severity")
        for one in getattr(said_so, name):
            one.ClearField("severity")
    stored.ClearField("version")
    stored.ClearField("turn_id")
    assert MessageToDict(stored) == MessageToDict(said_so)


async def test_a_second_fingerprint_of_a_turn_merges(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    await submit(
        caller,
        session,
        "t1",
        fingerprint=fingerprint("First", topics=["a", "b"], assertions=[signal("x", 1)], facts=[signal("y", 1)]),
    )
    more = fingerprint("Second", topics=["b", "c"], assertions=[signal("z", 2), signal("w", 3)])
    merged = (await submit(caller, session, "t1", fingerprint=more)).turn.fingerprint
    assert merged.objective == "First" and list(merged.topics) == ["a", "b", "c"]
    assert [one.key for one in merged.assertions] == ["z", "w"]
    assert [one.key for one in merged.facts] == ["y"]


async def test_what_a_fingerprint_may_not_say_is_named_by_its_path(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    wrong = fingerprint(
        "a",
        assertions=[signal("x", 1), signal("y", 1, "must"), signal("z", 1, "avoid")],
        facts=[signal("w", {"from": 1})],
        exceptions=[signal("v", "x" * 2000), signal("u", [1])],
    )
    failed = await failure(submit(caller, session, "t1", fingerprint=wrong))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert sorted(failed.fields) == [
        "fingerprint.assertions[2].severity",
        "fingerprint.exceptions[0].value",
        "fingerprint.exceptions[1].value",
        "fingerprint.facts[0].value",
    ]
    assert "AVOID does not fit here. Take one of" in failed.message
    empty = fingerprint("a", facts=[pb.TurnSignal(key="k", value={})])
    failed = await failure(submit(caller, session, "t1", fingerprint=empty))
    assert failed.fields == ["fingerprint.facts[0].value"] and "holds nothing" in failed.message
    long = fingerprint("a", facts=[signal(f"k{number}", "é" * 500) for number in range(16)])
    failed = await failure(submit(caller, session, "t1", fingerprint=long))
    assert failed.fields == ["fingerprint"] and "16384" in failed.message
    assert not (await turn_of(caller, session, "t1")).HasField("fingerprint")


async def test_a_submission_of_nothing(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    failed = await failure(submit(caller, session, "t1"))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["fingerprint"]
    failed = await failure(submit(caller, session, "t1", summary=pb.TurnSummary(), assistant_signal_spec="hotels"))
    assert failed.fields == ["assistant_signal_spec"]


async def test_a_title_is_that_of_the_first_turn_and_of_a_session_without_one(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    await talk(caller, session, "t2", "hello")
    answer = await submit(caller, session, "t2", fingerprint=fingerprint("b", conversation_title="Second"))
    assert answer.turn.fingerprint.conversation_title == ""
    answer = await submit(caller, session, "t1", fingerprint=fingerprint("a", conversation_title="First"))
    assert answer.turn.fingerprint.conversation_title == "First"
    found = await caller.sessions.GetSession(session_service_pb2.GetSessionRequest(session=session))
    assert found.session.title == "First"


async def test_the_time_of_a_fingerprint_is_that_of_its_last_message(caller: Caller) -> None:
    session = await caller.session()
    first, last = said("one", turn="t1"), said("two", turn="t1")
    first.create_time.CopyFrom(at(1_600_000_000))
    last.create_time.CopyFrom(at(1_600_000_100))
    await caller.add(session, first, last)
    answer = await submit(caller, session, "t1", fingerprint=fingerprint("a"))
    assert answer.turn.fingerprint.made_time == at(1_600_000_100)
    assert (answer.turn.start_time, answer.turn.end_time) == (at(1_600_000_000), at(1_600_000_100))


async def test_secrets_are_withheld(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    token = "ghp_" + "a1B2" * 10
    answer = await submit(
        caller,
        session,
        "t1",
        fingerprint=fingerprint(f"Use {token}", facts=[signal("token", token), signal("password", "hunter2!")]),
        summary=pb.TurnSummary(user_inquiry=f"Use {token}", done=[f"Used {token}"]),
    )
    seen = str(answer) + str(await turn_of(caller, session, "t1")) + str(await artifacts(caller, "turn:t1"))
    assert token not in seen and "hunter2" not in seen and "[withheld: token]" in seen


# Summaries


async def test_a_summary_replaces_the_one_before(caller: Caller) -> None:
    session = await caller.session()
    await talk(caller, session, "t1", "hello")
    first = pb.TurnSummary(user_inquiry="A trip", done=["searched"], risks=["late"], notes="none")
    assert (await submit(caller, session, "t1", summary=first)).turn.summary == first
    second = pb.TurnSummary(assistant_answer="Booked", not_done=["hotel"], assumptions=["cash"])
    assert (await submit(caller, session, "t1", summary=second)).turn.summary == second
    assert not (await submit(caller, session, "t1", summary=pb.TurnSummary())).turn.HasField("summary")


# Tasks


async def test_extraction_queues_one_task_for_a_turn(caller: Caller) -> None:
    session = await caller.session()
    for name in ("t1", "t2", "t3"):
        await talk(caller, session, name, "hello")
    first = await submit(caller, session, "t1", fingerprint=fingerprint("a"), extract=True, assistant_signal_spec="all")
    again = await submit(caller, session, "t1", extract=True)
    other = await submit(caller, session, "t2", extract=True)
    assert first.task_id and first.task_id == again.task_id != other.task_id
    task = await caller.task(first.task_id)
    assert task.kind == task_service_pb2.TASK_KIND_TURN_FINGERPRINT and task.turn_id == "t1"
    assert task.state == task_service_pb2.TASK_STATE_PENDING
    failed = await failure(submit(caller, session, "t3", fingerprint=fingerprint("c"), extract=True))
    assert failed.seen == ("RESOURCE_EXHAUSTED", "COMMIT_BACKLOG_FULL") and failed.retry_seconds
    # All or nothing.
    assert not (await turn_of(caller, session, "t3")).HasField("fingerprint")
    # Commits are counted apart.
    assert (await caller.commit(session)).task_id


# Artifacts


async def test_fingerprints_are_read_by_tag(caller: Caller) -> None:
    session, other = await caller.session(), await caller.session()
    await fingerprinted(caller, session, "t1", "one", made_time=at(100), assistant_signals=[signal("Hotel Offer!", 1)])
    await fingerprinted(caller, session, "t2", "two", made_time=at(300))
    await fingerprinted(caller, other, "t1", "three", made_time=at(200), assistant_signals=[signal("hotel-offer", 1)])
    name = "artifact:turn.fingerprint.v1"

    def objectives(found: list[Any]) -> list[str]:
        return [json.loads(one.text)["objective"] for one in found]

    for size in (1, 2, 0):
        assert objectives(await artifacts(caller, name, page_size=size)) == ["two", "three", "one"]
        tag = "assistant_signal:hotel_offer"
        assert objectives(await artifacts(caller, tag, page_size=size)) == ["three", "one"]
    assert objectives(await artifacts(caller, "turn:t1", session=session)) == ["one"]
    assert objectives(await artifacts(caller, "turn:t1", "assistant_signal")) == ["three", "one"]
    assert await artifacts(caller, "turn:t2", "assistant_signal") == []
    (one,) = await artifacts(caller, "turn:t1", session=session)
    assert (one.name, one.session, one.turn_id) == (name, caller.uri(f"sessions/{session}"), "t1")
    assert list(one.tags) == sorted([name, "turn:t1", "assistant_signal", "assistant_signal:hotel_offer"])
    assert one.said_time == at(100) and one.update_time.seconds and one.hosted_uri == ""


async def test_a_page_token_of_other_tags_is_refused(caller: Caller) -> None:
    session = await caller.session()
    for name in ("t1", "t2"):
        await fingerprinted(caller, session, name, name)
    tag = "artifact:turn.fingerprint.v1"
    page = await caller.turns.ListTurnArtifacts(pb.ListTurnArtifactsRequest(tags=[tag], page_size=1))
    request = pb.ListTurnArtifactsRequest(tags=["turn:t1"], page_size=1, page_token=page.next_page_token)
    assert (await failure(caller.turns.ListTurnArtifacts(request))).fields == ["page_token"]


# Assistant signals


async def test_assistant_signals_of_all_sessions_newest_first(caller: Caller) -> None:
    session, other = await caller.session(), await caller.session()
    now, day = int(time.time()), 86_400
    hotel, car = signal("Hotel", "Ritz", "recommend"), signal("rental.car", "Fiat")
    await fingerprinted(caller, session, "t1", "a", made_time=at(now - 3 * day), assistant_signals=[hotel])
    await fingerprinted(caller, other, "t1", "b", made_time=at(now - day), assistant_signals=[car, hotel])
    await fingerprinted(caller, session, "t2", "c", made_time=at(now - 2 * day))
    await fingerprinted(caller, session, "t3", "d", made_time=at(now - 366 * day), assistant_signals=[hotel])
    for size in (1, 2, 0):
        found = await promoted(caller, page_size=size)
        assert [(one.session, one.turn_id) for one in found] == [
            (caller.uri(f"sessions/{other}"), "t1"),
            (caller.uri(f"sessions/{session}"), "t1"),
        ]
    assert [one.key for one in found[0].signals] == ["rental.car", "Hotel"]
    assert found[0].made_time == at(now - day)
    # Of a key, only the signals of that key.
    (one,) = await promoted(caller, "rental_car")
    assert [signal.key for signal in one.signals] == ["rental.car"]
    assert len(await promoted(caller, "rental_car", "hotel")) == 2
    assert await promoted(caller, "boat") == []
    (one,) = await promoted(caller, session=session)
    assert one.turn_id == "t1"
    assert (await failure(promoted(caller, "!"))).fields == ["keys[0]"]
    assert (await failure(promoted(caller, session="nowhere"))).resource == ("session", "nowhere")


@pytest.mark.parametrize("method", ["ListTurnArtifacts", "ListAssistantSignals", "ListFeedback"])
async def test_a_list_of_a_session_that_is_not_there(caller: Caller, method: str) -> None:
    request = getattr(pb, f"{method}Request")(session="nowhere")
    if method == "ListTurnArtifacts":
        request.tags.append("turn:t1")
    assert (await failure(getattr(caller.turns, method)(request))).resource == ("session", "nowhere")


async def test_turn_memory_goes_with_its_session(caller: Caller) -> None:
    session = await caller.session(session_id="s")
    await fingerprinted(caller, session, "t1", "a", assistant_signals=[signal("hotel", 1)])
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    assert await artifacts(caller, "turn:t1") == [] and await promoted(caller) == []
    await caller.session(session_id="s")
    assert (await failure(turn_of(caller, session, "t1"))).resource == ("turn", "t1")
    assert await artifacts(caller, "turn:t1", session=session) == []


async def test_turn_memory_stays_when_messages_are_archived(caller: Caller) -> None:
    session = await caller.session()
    before = (await fingerprinted(caller, session, "t1", "a")).turn
    await caller.commit(session)
    assert await turn_of(caller, session, "t1") == before
