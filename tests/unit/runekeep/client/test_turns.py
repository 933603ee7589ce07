"""How the client speaks about turns: what goes out, what comes back, and what it refuses before anything goes out."""

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

import pytest

from runekeep import AsyncClient, Client
from runekeep.client.turns import requests
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import turn_memory_service_pb2 as wire
from runekeep_schemas.turns.fingerprint import SEVERITIES
from tests.unit.runekeep.server_double import ServerDouble

FINGERPRINT: dict[str, Any] = {
    "version": "v1",
    "turn_id": "t1",
    "objective": "Plan a trip to Ghent",
    "topics": ["travel", "Ghent"],
    "assertions": [
        {"key": "budget", "value": {"max": 500}, "severity": "must", "scope": "objective", "applies_to": "trip"},
        {"key": "train", "value": True, "severity": "prefer", "scope": None, "applies_to": ""},
    ],
    "exceptions": [
        {"key": "hotels", "value": {"exclude": ["Ibis"]}, "severity": "do_not", "scope": None, "applies_to": ""}
    ],
    "facts": [{"key": "people", "value": 2, "severity": "high", "scope": "conversation", "applies_to": ""}],
    "assistant_signals": [
        {"key": "pass", "value": None, "severity": "strong_promote", "scope": "thread", "applies_to": ""}
    ],
    "ctx_retrieval_queries": [{"target": "assistant_artifact", "query": "train table", "reason": "times"}],
    "made_time": "2026-01-25T09:15:30Z",
    "conversation_title": "A trip",
}
SUMMARY: dict[str, Any] = {
    "user_inquiry": "a trip",
    "user_message_description": "",
    "assistant_answer": "a plan",
    "delivered_to_user": "",
    "done": ["plan"],
    "not_done": [],
    "assumptions": [],
    "risks": ["rain"],
    "notes": "",
}


def context(offer: str = "what was offered") -> wire.LoadTurnContextResponse:
    return wire.LoadTurnContextResponse(
        current={"turn": {"turn_id": "t9"}}, candidates=[{"turn": {"turn_id": "t8"}, "recent": True}], offer=offer
    )


async def test_a_fingerprint_and_a_summary_come_back_as_they_went_out(server: ServerDouble) -> None:
    turn = wire.Turn(
        turn_id="t1",
        fingerprint=requests.fingerprint_to_wire(FINGERPRINT),
        summary=requests.summary_to_wire(SUMMARY),
    )
    server.script("SubmitTurn", wire.SubmitTurnResponse(turn=turn, task_id="job"))
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        told = await session.submit_turn(
            "t1",
            fingerprint=FINGERPRINT,
            summary=SUMMARY,
            extract=True,
            assistant_signal_spec="offers",
            extract_selection=True,
            extract_feedback=True,
            queries=["walnut", {"query": "pecan", "target": "user"}],
        )
    assert told["task_id"] == "job"
    assert (told["turn"]["fingerprint"], told["turn"]["summary"]) == (FINGERPRINT, SUMMARY)
    assert type(told["turn"]["fingerprint"]["facts"][0]["value"]) is int
    (request,) = server.requests("SubmitTurn")
    assert (request.session, request.turn_id, request.extract) == ("s", "t1", True)
    assert request.assistant_signal_spec == "offers" and request.request_id
    assert (request.extract_selection, request.extract_feedback) == (True, True)
    assert [(one.query, one.target) for one in request.ctx_retrieval_queries] == [
        ("walnut", wire.CONTEXT_QUERY_TARGET_UNSPECIFIED),
        ("pecan", wire.CONTEXT_QUERY_TARGET_USER),
    ]
    assert to_json(request.fingerprint) == FINGERPRINT
    assert request.fingerprint.assertions[0].value.struct_value.fields["max"].number_value == 500


async def test_what_is_not_given_is_not_sent(server: ServerDouble) -> None:
    async with AsyncClient(server.address) as client:
        await client.session("s").submit_turn("t1", fingerprint={"objective": "x"}, request_id="mine")
        await client.session("s").submit_turn("t1", extract=True)
    first, second = server.requests("SubmitTurn")
    assert first.request_id == "mine" and second.request_id not in ("", "mine")
    assert first.HasField("fingerprint") and not first.HasField("summary")
    assert not second.HasField("fingerprint") and not first.fingerprint.HasField("made_time")
    assert not (second.extract_selection or second.extract_feedback or second.ctx_retrieval_queries)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"objektive": "x"}, "fingerprint has no 'objektive'; it has version, turn_id, objective"),
        ({"topics": "travel"}, "fingerprint.topics is a list, not str"),
        ({"topics": ["a", 3]}, r"fingerprint.topics\[1\] is text, not int"),
        ({"objective": 3}, "fingerprint.objective is text, not int"),
        ({"facts": [{"key": "a"}]}, r"fingerprint.facts\[0\] has no value"),
        ({"facts": [{"value": 1}]}, r"fingerprint.facts\[0\] has no key"),
        ({"facts": ["a=b"]}, r"fingerprint.facts\[0\] is a dict, not str"),
        ({"facts": {"a": "b"}}, "fingerprint.facts is a list, not dict"),
        ({"facts": [{"key": "a", "value": 1, "weight": 2}]}, r"facts\[0\] has no 'weight'; it has key, value"),
        (
            {"facts": [{"key": "a", "value": 1}, {"key": "a", "value": 1, "severity": "big"}]},
            r"fingerprint.facts\[1\].severity: 'big' is none of high, medium, low$",
        ),
        ({"exceptions": [{"key": "a", "value": 1, "severity": "must"}]}, "'must' is none of avoid, do_not$"),
        ({"facts": [{"key": "a", "value": 1, "severity": ["high"]}]}, r"severity: \['high'\] is none of high"),
        ({"facts": [{"key": "a", "value": 1, "scope": "world"}]}, "scope: 'world' is none of conversation, objective"),
        ({"facts": [{"key": "a", "value": {1, 2}}]}, r"facts\[0\].value is nothing that JSON can hold"),
        ({"facts": [{"key": "a", "value": float("nan")}]}, "nothing that JSON can hold"),
        ({"facts": [{"key": "a", "value": 2**53 + 1}]}, "would be rounded"),
        ({"facts": [{"key": "a", "value": 10**400}]}, r"facts\[0\].value holds a number that is too large; give it as"),
        ({"facts": [{"key": "a", "value": {"max": 10**400}}]}, "too large; give it as text"),
        ({"ctx_retrieval_queries": [{"where": "user", "query": "x"}]}, "has no 'where'; it has target, query, reason"),
        ({"ctx_retrieval_queries": [{"target": "user"}]}, r"ctx_retrieval_queries\[0\] has no query"),
        ({"made_time": "yesterday"}, "fingerprint.made_time is a datetime or ISO 8601 with its zone, not 'yesterday'"),
        ({"made_time": 3}, "fingerprint.made_time is a datetime"),
    ],
)
async def test_what_cannot_be_meant_is_refused_where_it_stands(
    server: ServerDouble, given: dict[str, Any], said: str
) -> None:
    async with AsyncClient(server.address) as client:
        with pytest.raises(ValueError, match=said):
            await client.session("s").submit_turn("t1", fingerprint=given)
        with pytest.raises(ValueError, match="summary has no 'objective'"):
            await client.session("s").submit_turn("t1", summary={"objective": "x"})
    assert not server.calls


async def test_what_was_chosen_goes_out_with_the_offer_it_was_chosen_from(server: ServerDouble) -> None:
    server.script("LoadTurnContext", context())
    stored = wire.TurnSelection(local_memories_turn_ids=["t1"], current_turn_id="t9")
    server.script("SetTurnSelection", wire.SetTurnSelectionResponse(selection=stored, dropped=["t7"]))
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        queries = ["budget", {"query": "tables", "target": "assistant_artifact", "reason": "why"}]
        shown = await session.turn_context("t9", "reconciler", last_turns=5, queries=queries)
        chosen = await session.select_turns(shown, ["t1", "t7"], ["t2"], ["obj-a"])
        await session.select_turns(None)
    assert shown["candidates"][0]["recent"] and shown["selection"] is None
    assert chosen["selection"]["local_memories_turn_ids"] == ["t1"] and chosen["dropped"] == ["t7"]
    (asked,) = server.requests("LoadTurnContext")
    assert (asked.current_turn_id, asked.last_turns, asked.render) == ("t9", 5, True)
    assert asked.audience == wire.CONTEXT_AUDIENCE_RECONCILER
    assert [(one.query, one.target) for one in asked.ctx_retrieval_queries] == [("budget", 0), ("tables", 3)]
    first, empty = server.requests("SetTurnSelection")
    assert first.offer == "what was offered"
    assert (first.selection.current_turn_id, list(first.selection.turn_ids)) == ("t9", ["t2"])
    assert list(first.selection.memory_bucket_ids) == ["obj-a"]
    assert empty.HasField("selection") and (empty.offer, empty.selection.current_turn_id) == ("", "")


async def test_words_that_are_none_are_refused_with_those_there_are(server: ServerDouble) -> None:
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        wrong: Any = "everybody"
        with pytest.raises(ValueError, match="audience: 'everybody' is none of gate, reconciler, downstream"):
            await session.turn_context("t1", wrong)
        with pytest.raises(ValueError, match="reaction: 'everybody' is none of ok, not_ok, neutral"):
            await session.feedback("t1", wrong)
        with pytest.raises(ValueError, match="origin: 'everybody' is none of user, machine"):
            await session.feedback("t1", "ok", origin=wrong)
        with pytest.raises(ValueError, match="name, short_desc or enabled"):
            await session.update_bucket("obj-a")
        with pytest.raises(ValueError, match="limit is at least 1"):
            await session.list_feedback(limit=0)
        wrong = "2026-05-01T00:00:00Z"
        with pytest.raises(TypeError, match="start_time is a datetime, not str"):
            await session.list_feedback(start_time=wrong)
        with pytest.raises(TypeError, match="as_of is a datetime, not str"):
            await client.find("x", as_of=wrong)
    assert not server.calls


async def test_a_text_is_no_list(server: ServerDouble) -> None:
    one: Any = "turn-1"
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        calls: dict[str, list[Awaitable[Any]]] = {
            "local_memories_turn_ids": [session.select_turns(None, one)],
            "turn_ids": [session.select_turns(None, [], one), session.list_feedback(one)],
            "memory_bucket_ids": [session.select_turns(None, memory_bucket_ids=one)],
            "queries": [session.turn_context("t1", "gate", queries=one)],
            "match_queries": [session.feedback("t1", match_queries=one)],
            "tags": [anext(client.turn_artifacts(one))],
            "keys": [anext(client.assistant_signals(one))],
            "states": [anext(client.list_tasks(states=one))],
            "kinds": [client.find("x", kinds=one)],
            "memory_types": [client.find("x", memory_types=one)],
            "contexts": [client.session("s2").used(one)],
        }
        for name, asked in calls.items():
            for call in asked:
                with pytest.raises(ValueError, match=f"^{name} is a list; put brackets around"):
                    await call
    assert not [call for call in server.calls if call.method != "GetSession"]


def test_severities_are_those_of_the_rules() -> None:
    assert {name: set(words) for name, words in requests._SEVERITIES.items()} == {
        name: set(words) for name, words in SEVERITIES.items()
    }


async def test_a_reaction_is_said_in_words_and_a_machine_may_leave_the_turn_open(server: ServerDouble) -> None:
    stored = wire.Feedback(turn_id="t1", reaction=wire.REACTION_NOT_OK, origin=wire.FEEDBACK_ORIGIN_USER, confidence=1)
    server.script("SubmitFeedback", wire.SubmitFeedbackResponse(feedback=stored))
    server.script("ClearFeedback", wire.ClearFeedbackResponse(cleared=True))
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        told = await session.feedback("t1", "not_ok", "too dear")
        await session.feedback(
            text="no", origin="machine", confidence=0.8, from_turn_id="t2", match_queries=["the price"]
        )
        assert await session.clear_feedback("t1") is True
    assert (told["reaction"], told["origin"], told["confidence"]) == ("not_ok", "user", 1)
    user, machine = server.requests("SubmitFeedback")
    assert (user.feedback.turn_id, user.feedback.text) == ("t1", "too dear")
    assert user.feedback.reaction == wire.REACTION_NOT_OK
    assert (machine.feedback.turn_id, machine.feedback.confidence) == ("", 0.8)
    assert (machine.feedback.origin, machine.feedback.from_turn_id) == (wire.FEEDBACK_ORIGIN_MACHINE, "t2")
    assert machine.feedback.reaction == wire.REACTION_UNSPECIFIED
    assert machine.match_queries[0].query == "the price"
    assert user.request_id and user.request_id != machine.request_id


async def test_feedback_is_listed_to_the_limit_and_counted_as_a_whole(server: ServerDouble) -> None:
    counts = wire.FeedbackCounts(total=5, user=2, machine=3, ok=1, not_ok=3, neutral=1)
    one = wire.Feedback(turn_id="t1", origin=1)
    server.script(
        "ListFeedback",
        wire.ListFeedbackResponse(feedback=[one, one], counts=counts, next_page_token="more"),
        wire.ListFeedbackResponse(feedback=[one, one], counts=counts, next_page_token="more"),
    )
    since = datetime(2026, 1, 1, tzinfo=UTC)
    async with AsyncClient(server.address) as client:
        found = await client.session("s").list_feedback(["t1"], start_time=since, limit=3)
        await client.list_feedback(end_time=since)
    assert len(found["feedback"]) == 3 and found["counts"]["total"] == 5
    assert found["feedback"][0]["reaction"] is None
    first, second, all_sessions = server.requests("ListFeedback")[:3]
    assert [request.page_token for request in (first, second)] == ["", "more"]
    assert (first.session, list(first.turn_ids), first.page_size) == ("s", ["t1"], 3)
    assert first.start_time.ToJsonString() == "2026-01-01T00:00:00Z" and not first.HasField("end_time")
    assert all_sessions.session == "" and all_sessions.HasField("end_time")


async def test_a_bucket_is_changed_in_what_is_given_alone(server: ServerDouble) -> None:
    server.script("ReconcileMemoryBuckets", wire.ReconcileMemoryBucketsResponse(task_id="job"))
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        await session.update_bucket("obj-a", enabled=False)
        await session.update_bucket("obj-a", name="New", short_desc="")
        await session.buckets(show_disabled=True)
        assert await session.reconcile_buckets() == "job"
    first, second = server.requests("UpdateMemoryBucket")
    assert (first.bucket.session, first.bucket.bucket_id, first.bucket.state) == ("s", "obj-a", 2)
    assert list(first.update_mask.paths) == ["state"]
    assert list(second.update_mask.paths) == ["name", "short_desc"] and second.bucket.name == "New"
    assert server.requests("ListMemoryBuckets")[0].show_disabled


def test_the_blocking_face_has_all_of_it_and_follows_pages(server: ServerDouble) -> None:
    names = (("b", "x"), ("a", ""))
    turns = [wire.ListTurnsResponse(turns=[{"turn_id": name}], next_page_token=token) for name, token in names]
    server.script("ListTurns", *turns)
    said = wire.AssistantSignals(turn_id="t1", signals=[{"key": "pass", "value": {"bool_value": True}, "severity": 10}])
    pages = [wire.ListAssistantSignalsResponse(turns=[said], next_page_token=token) for token in ("x", "")]
    server.script("ListAssistantSignals", *pages)
    artifacts = [
        wire.ListTurnArtifactsResponse(artifacts=[{"name": "n"}], next_page_token=token) for token in ("x", "")
    ]
    server.script("ListTurnArtifacts", *artifacts)
    server.script("GetTurn", wire.GetTurnResponse(turn={"turn_id": "a"}))
    with Client(server.address) as client:
        session = client.session("s")
        assert [turn["turn_id"] for turn in session.turns(fingerprinted_only=True)] == ["b", "a"]
        assert session.get_turn("a")["fingerprint"] is None
        promoted = list(client.assistant_signals(["pass"]))
        assert [one["signals"][0]["severity"] for one in promoted] == ["recommend", "recommend"]
        assert promoted[0]["signals"][0]["value"] is True
        assert len(list(client.turn_artifacts(["turn:a", "assistant_signal"], session="s"))) == 2
        assert client.list_feedback()["feedback"] == []
        assert session.buckets() == {"buckets": [], "last_covered_time": None}
        assert session.feedback("a", "ok")["reaction"] is None
        assert session.clear_feedback("a") is False
        assert session.reconcile_buckets() == ""
        assert session.select_turns(session.turn_context("a", "gate"))["dropped"] == []
        assert session.submit_turn("a", extract=True)["task_id"] == ""
        assert session.update_bucket("b", name="n")["timeline"] == []
        assert session.list_feedback()["counts"]["total"] == 0
    assert server.requests("ListTurns")[0].fingerprinted_only
    assert list(server.requests("ListAssistantSignals")[0].keys) == ["pass"]
    second = server.requests("ListTurnArtifacts")[1]
    assert (second.page_token, list(second.tags), second.session) == ("x", ["turn:a", "assistant_signal"], "s")
