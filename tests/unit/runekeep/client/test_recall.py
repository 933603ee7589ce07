"""How the client and the command line ask for recalls and contexts, and what they make of the answers."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from runekeep import AsyncClient, Client, Message, TextPart
from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2
from tests.unit.runekeep.cli.cli_answers import run
from tests.unit.runekeep.server_double import ServerDouble

TEXT = "## Memories\n- <viking://user/u/memories/profile.md> (profile, as of 2026-01-31): Who [red]x[/red] is."


def recalled() -> memory_service_pb2.RecallResponse:
    entry = memory_service_pb2.RecallEntry(
        uri="viking://user/u/memories/profile.md", kind=1, memory_type="profile", level=2, text=TEXT[12:], tokens=30,  # type: ignore[arg-type]  # numbers of enums
        score=0.5, version=2,
    )  # fmt: skip
    entry.time.FromJsonString("2026-01-31T00:00:00Z")
    return memory_service_pb2.RecallResponse(
        text=TEXT,
        tokens=34,
        entries=[entry],
        omitted=memory_service_pb2.RecallOmitted(given=2, over_quota=1, over_budget=3),
        revision=4,
        pending_passages=1,
        degraded=["dense"],
    )


def context() -> session_service_pb2.GetSessionContextResponse:
    def message(words: str, sequence: int) -> common_pb2.Message:
        return common_pb2.Message(id=f"m{sequence}", sequence=sequence, role=1, parts=[{"text": {"text": words}}])  # type: ignore[arg-type, list-item]  # as dicts

    return session_service_pb2.GetSessionContextResponse(
        overview="# What was said",
        overview_uri="viking://user/u/sessions/s1/history/archive_001",
        pending_messages=[message("archived", 3)],
        live_messages=[message("[bold]live[/bold]", 4)],
        tokens=40,
        omitted_messages=2,
    )


async def test_a_recall_asks_for_all_that_it_is_told(server: ServerDouble) -> None:
    server.script("Recall", recalled())
    east = datetime(2026, 1, 31, 2, tzinfo=timezone(timedelta(hours=2)))
    async with AsyncClient(server.address) as client:
        answer = await client.recall(
            "tea",
            "s1",
            token_budget=500,
            quotas={"events": 5, "passages": (3, 200)},
            max_level="overview",
            limit=7,
            target_uri="viking://user/memories",
            memory_types=["events"],
            kinds=["memory"],
            peers=["anna", ""],
            tags=["x"],
            start_time=east,
            end_time=datetime(2026, 2, 1, tzinfo=UTC),
            score_threshold=0.25,
            min_revision=4,
            repeat=True,
            request_id="mine",
        )
        await client.recall("tea")
        await client.recall(parts=["stable"])
    full, bare, stable = server.requests("Recall")
    assert (stable.query, stable.parts) == ("", [memory_service_pb2.RECALL_PART_STABLE])
    wanted = memory_service_pb2.RecallRequest(
        query="tea", session="s1", token_budget=500, max_level=3, limit=7, target_uri="viking://user/memories",  # type: ignore[arg-type]  # numbers of enums
        quotas=[
            memory_service_pb2.RecallQuota(memory_type="events", max_items=5),
            memory_service_pb2.RecallQuota(memory_type="passages", max_items=3, max_tokens=200),
        ],
        memory_types=["events"], kinds=[1], peers=["anna", ""], tags=["x"], score_threshold=0.25, min_revision=4,  # type: ignore[list-item]  # numbers of enums
        repeat=True, request_id="mine",
    )  # fmt: skip
    wanted.start_time.FromJsonString("2026-01-31T00:00:00Z")
    wanted.end_time.FromJsonString("2026-02-01T00:00:00Z")
    assert full == wanted
    assert bare.request_id and not bare.HasField("score_threshold") and not bare.HasField("start_time")
    assert (answer["text"], answer["tokens"], answer["degraded"]) == (TEXT, 34, ["dense"])
    assert answer["omitted"] == {"given": 2, "over_quota": 1, "over_budget": 3}
    (entry,) = answer["entries"]
    assert (entry["kind"], entry["level"], entry["time"]) == ("memory", "abstract", "2026-01-31T00:00:00Z")
    assert json.loads(json.dumps(answer.to_dict())) == answer


def test_a_session_recalls_for_itself_and_is_made_with_its_first_use(server: ServerDouble) -> None:
    server.script("Recall", memory_service_pb2.RecallResponse())
    with Client(server.address) as client:
        session = client.session("s1")
        assert session.recall(limit=3)["omitted"] == {"given": 0, "over_quota": 0, "over_budget": 0}
        session.recall("tea")
    assert [call.method for call in server.calls] == ["GetSession", "Recall", "Recall"]
    first, second = server.requests("Recall")
    assert (first.query, first.session, first.limit, second.query) == ("", "s1", 3, "tea")
    assert first.request_id != second.request_id


def test_lists_that_are_texts_and_words_that_are_none_are_refused(server: ServerDouble) -> None:
    with Client(server.address) as client:
        for options in ({"peers": "anna"}, {"kinds": ["thing"]}, {"max_level": "deep"}, {"memory_types": "events"}):
            with pytest.raises(ValueError):
                client.recall("tea", **options)
    assert not server.calls


def test_an_explanation_refuses_an_option_that_a_search_does_not_have(server: ServerDouble) -> None:
    with Client(server.address) as client:
        with pytest.raises(TypeError, match=r"explain_search\(\) has no option 'peer'; did you mean 'peers'\?"):
            client.explain_search("viking://user/memories/profile.md", "tea", peer=["bob"])
        client.explain_search("viking://user/memories/profile.md", "tea", peers=["bob"])
    (asked,) = server.requests("ExplainSearch")
    assert list(asked.search.peers) == ["bob"]


def test_a_context_holds_messages_as_the_caller_writes_them(server: ServerDouble) -> None:
    server.script("GetSessionContext", context())
    with Client(server.address) as client:
        found = client.session("s1").context(500)
    (request,) = server.requests("GetSessionContext")
    assert (request.session, request.token_budget) == ("s1", 500)
    pending, live = found.messages
    assert pending == Message("user", [TextPart("archived")], id="m3", sequence=3) and [live] == found.live
    assert (found.overview, found.tokens, found.omitted_messages) == ("# What was said", 40, 2)
    assert found.overview_uri.endswith("/archive_001") and not found.overview_omitted


def test_the_command_prints_what_is_put_into_a_prompt_and_nothing_else_on_stdout(server: ServerDouble) -> None:
    server.script("Recall", recalled())
    told = run(server, "recall", "tea", "--token-budget", "500", "--quota", "events=5", "--quota", "passages=3,200")
    assert told.stdout == TEXT + "\n"
    assert told.stderr.splitlines() == [
        "1 entry, 34 tokens.",
        "Left out: 2 given to the session before.",
        "Left out: 1 over a quota.",
        "Left out: 3 without room.",
        "The embedder did not answer: everything is found by its words alone.",
        "1 message is not in the index yet.",
    ]
    (request,) = server.requests("Recall")
    assert [(one.memory_type, one.max_items, one.max_tokens) for one in request.quotas] == [
        ("events", 5, 0),
        ("passages", 3, 200),
    ]
    assert (request.token_budget, request.max_level, request.limit) == (500, 4, 40)
    for wrong in ("events", "=3", "events=", "events=x", "events=1,x"):
        run(server, "recall", "tea", "--quota", wrong, status=2)
    run(server, "recall", "tea", "--level", "deep", status=2)


def test_the_command_chooses_as_find_does(server: ServerDouble) -> None:
    server.script("Recall", recalled())
    options = ["--target", "viking://user/memories", "--type", "events", "--kind", "passage", "--threshold", "0.25"]
    options += ["--peer", "anna", "--peer", "", "--tag", "x", "--tag", "y", "--min-revision", "4"]
    run(server, "recall", "tea", *options, "--since", "2026-01-31T00:00:00Z", "--until", "2026-02-01T00:00:00Z")
    run(server, "recall", "tea")
    full, bare = server.requests("Recall")
    assert (full.target_uri, list(full.memory_types), list(full.kinds)) == ("viking://user/memories", ["events"], [2])
    assert (list(full.peers), list(full.tags)) == (["anna", ""], ["x", "y"])
    assert (full.score_threshold, full.min_revision) == (0.25, 4)
    times = (full.start_time.ToJsonString(), full.end_time.ToJsonString())
    assert times == ("2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z")
    assert not any(bare.HasField(name) for name in ("score_threshold", "start_time", "end_time")) and not bare.kinds
    run(server, "recall", "tea", "--kind", "thing", status=2)
    run(server, "recall", "tea", "--since", "soon", status=2)


HOSTILE = "a\ttab, \x07a bell, \x1b]0;owned\x07\x1b[2J, \x9b31m, \x7f, \u202edrow, \rover it  "


def test_what_is_piped_is_text_to_the_letter(server: ServerDouble) -> None:
    answer = recalled()
    answer.text = HOSTILE
    server.script("Recall", answer)
    server.script("ReadDocument", memory_service_pb2.ReadDocumentResponse(text=HOSTILE))
    assert run(server, "recall", "tea").stdout_bytes.decode() == HOSTILE + "\n"
    assert run(server, "memory", "read", "viking://user/memories/profile.md").stdout_bytes.decode() == HOSTILE + "\n"


def test_a_terminal_is_sent_no_control_characters_of_a_text(
    server: ServerDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    answer = recalled()
    answer.text = HOSTILE
    server.script("Recall", answer)
    server.script("ReadDocument", memory_service_pb2.ReadDocumentResponse(text=HOSTILE))
    found = memory_service_pb2.FoundItem(passage=memory_service_pb2.Passage(text=HOSTILE))
    server.script("FindMemories", memory_service_pb2.FindMemoriesResponse(results=[found]))
    for command in (
        ["recall", "tea"],
        ["memory", "read", "viking://user/memories/profile.md"],
        ["memory", "find", "x"],
    ):
        shown = run(server, *command).stdout_bytes.decode()
        assert "\N{SYMBOL FOR ESCAPE}]0;owned" in shown and "\N{SYMBOL FOR ESCAPE}[2J" in shown, command
        assert not set("\x07\x9b\x7f\u202e\r") & set(shown), command
        assert "\x1b]" not in shown and "\x1b[2J" not in shown, command


def test_the_command_shows_a_context_in_the_order_of_time(server: ServerDouble) -> None:
    server.script("GetSessionContext", context())
    text = run(server, "session", "context", "s1", "--token-budget", "500").stdout
    order = ["archive_001", "# What was said", "Archived, not extracted yet", "archived", "Live", "[bold]live[/bold]"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "40 tokens" in text and "No room for 2 older messages." in text
    told = json.loads(run(server, "session", "context", "s1", "--json").stdout)
    assert [one["parts"][0]["text"] for one in told["live_messages"]] == ["[bold]live[/bold]"]
    assert (told["pending_messages"][0]["sequence"], told["omitted_messages"]) == (3, 2)
