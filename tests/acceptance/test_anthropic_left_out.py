"""What a model gets wrong costs no commit more than itself, what it says about a peer is written, and what it is asked
about an agent's work: server and extractor as processes, a scripted model."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from runekeep import Client, TextPart, ToolPart
from tests.acceptance.processes import Processes, processes
from tests.acceptance.test_anthropic_dedup import WAIT_SECONDS, decided, extractor, told, write
from tests.doubles.messages_api import MessagesApi, Request, answer

PROFILE = "viking://user/memories/profile.md"
LIFE = "# User profile\n- Name: Ana\n- Lives in Oslo\n- Works as a surveyor\n- Has two dogs, Rex and Tom"
_users = count(1)


class Model:
    """Answers every request about the conversation at hand with the operations laid down. `asked`: these requests."""

    def __init__(self) -> None:
        self.begin()

    def begin(self, *writes: dict[str, Any], **keys: Any) -> None:
        self.answer = {**told(*writes), **keys}
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> dict[str, Any]:
        if "# Candidates" in request.last_text:
            return {"decisions": [decided("create")]}
        self.asked.append(request)
        return self.answer


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Processes]:
    with MessagesApi() as api, processes(tmp_path_factory.mktemp("left-out")) as fleet:
        api.otherwise = answer(model)
        fleet.server(RUNEKEEP_BACKOFF_FIRST_SECONDS="0.1", RUNEKEEP_BACKOFF_MAX_SECONDS="0.1")
        extractor(fleet, api, "worker")
        yield fleet


@pytest.fixture
def client(running: Processes) -> Iterator[Client]:
    with Client(running.address, user=f"left-out-{next(_users)}") as client:
        yield client


def commit(client: Client, *texts: str | tuple[str, str], policy: dict[str, Any] | None = None) -> dict[str, Any]:
    """The ended task of a commit of these messages of users; of a pair the second is the peer who says it."""
    session = client.session()
    for text in texts or ("I am Ana.",):
        said, peer = (text, "") if isinstance(text, str) else text
        session.add_message("user", [TextPart(said)], peer_id=peer)
    return dict(client.wait_task(session.commit(memory_policy=policy)["task_id"], timeout=WAIT_SECONDS))


def edit(uri: str, *blocks: tuple[str, str], value: str | None = None) -> dict[str, Any]:
    given = [{"search": search, "replace": replace, "start_line": 0} for search, replace in blocks]
    patch = {"field": "content", "blocks": given, "value": value}
    return {"uri": uri, "patches": [patch], "ranges": [{"start": 1, "end": 1}], "reason": "said so"}


@pytest.mark.parametrize(
    ("operation", "left_out", "calls"),
    [
        pytest.param(
            {"edit_operations": [edit(PROFILE, ("Porto", "x"))]}, "patch_not_applicable", 2, id="no such text"
        ),
        pytest.param({"edit_operations": [edit(PROFILE, value="Ana.")]}, "field_invalid", 2, id="a profile cut short"),
        pytest.param(
            {"write_operations": [write("events", event_name="x", content="y")]}, "type_filtered", 1, id="type"
        ),
        pytest.param({"write_operations": [{**write(topic="x"), "ranges": "none"}]}, "", 2, id="unreadable"),
    ],
)
def test_an_operation_that_cannot_be_applied_costs_a_commit_only_itself(
    client: Client, model: Model, operation: dict[str, Any], left_out: str, calls: int
) -> None:
    model.begin(write("profile", content=LIFE))
    assert commit(client)["result"]["outcome"] == "applied"
    model.begin(**operation)
    task = commit(client, policy={"self": {"enabled": True}, "memory_types": ["profile", "preferences"]})
    result = task["result"]
    assert (task["status"], result["outcome"]) == ("completed", "nothing_applied")
    assert (len(model.asked), task["attempt"]) == (calls, 1 if left_out else 2)
    named = [one["reason"] for one in (*result["skipped"], *result["rejected"])]
    assert (named, result["dropped_items"]) == (([left_out], 0) if left_out else ([], 1))

    archive = task["archive_uri"]
    assert "Drinks" in client.read(f"{archive}/.abstract.md") and client.read(f"{archive}/.overview.md")
    assert client.read(f"{archive}/.done") is not None
    diff = json.loads(client.read(f"{archive}/memory_diff.json"))
    assert diff["summary"] == {"total_adds": 0, "total_updates": 0, "total_deletes": 0}
    assert client.get_memory(PROFILE)["fields"]["content"] == LIFE


def test_what_is_right_beside_a_wrong_operation_is_applied(client: Client, model: Model) -> None:
    model.begin(write(topic="Tea", content="Likes tea."), edit_operations=[edit(PROFILE, ("Porto", "x"))])
    task = commit(client)
    assert (task["result"]["outcome"], task["attempt"], len(model.asked)) == ("partly_rejected", 1, 2)
    assert client.get_memory("viking://user/memories/preferences/Tea.md")["fields"]["content"] == "Likes tea."


def test_what_the_user_says_about_a_peer_is_written_about_the_peer(client: Client, model: Model) -> None:
    nuts = write("entities", entity_name="Allergies", entity_type="health", content="Carol is allergic to nuts.")
    model.begin({**nuts, "peer_id": "carol"})
    both = {"self": {"enabled": True}, "peer": {"enabled": True}}
    task = commit(client, "Carol is allergic to nuts.", ("Hello!", "carol"), policy=both)
    assert (task["result"]["outcome"], task["result"]["skipped"]) == ("applied", [])
    uri = "viking://user/peers/carol/memories/entities/Allergies.md"
    assert client.get_memory(uri)["fields"]["content"] == "Carol is allergic to nuts."

    model.begin(edit_operations=[edit(uri, ("nuts", "nuts and shellfish"))])
    commit(client, "Carol cannot eat shellfish either.", ("Hello!", "carol"), policy=both)
    assert client.get_memory(uri)["fields"]["content"] == "Carol is allergic to nuts and shellfish."

    model.begin({**nuts, "peer_id": "dora"})
    task = commit(client, "Dora is allergic to nuts.", ("Hello!", "carol"), policy=both)
    assert task["result"]["outcome"] == "nothing_applied"
    assert [one["reason"] for one in task["result"]["skipped"]] == ["peer_not_in_batch"]


def types_wanted(request: Request) -> str:
    schema = json.dumps(request.body.get("output_config") or request.body.get("output_format") or {})
    return request.system_text + request.last_text + schema


def test_execution_memories_are_asked_for_where_an_agent_works(client: Client, model: Model) -> None:
    model.begin()
    skills = {"self": {"enabled": True}, "session_skills": {"enabled": True}}
    commit(client, "Good morning!", "I like tea.", policy=skills)
    (plain,) = model.asked
    assert "preferences" in types_wanted(plain)
    assert not any(name in types_wanted(plain) for name in ("trajectories", "experiences", "session_skills"))

    def lesson(name: str, supersedes: str) -> dict[str, Any]:
        return write("experiences", experience_name=name, content="Go.", supersedes=supersedes)

    for name, before in (("Check twice", ""), ("Check once", "Check twice")):
        model.begin(lesson(name, before))
        session = client.session()
        session.add_message("user", [TextPart("Find the bug.")])
        session.add_message("assistant", [ToolPart(tool_id="t1", tool_name="grep", output="here", status="completed")])
        committed = session.commit(memory_policy=skills)
        task = client.wait_task(committed["task_id"], timeout=WAIT_SECONDS)
        assert task["result"] is not None and task["result"]["outcome"] == "applied"
        assert all(word in types_wanted(model.asked[0]) for word in ("trajectories", "experiences", "session_skills"))
    names = [entry["name"] for entry in client.ls("viking://user/memories/experiences")["entries"]]
    assert [name for name in names if not name.startswith(".")] == ["Check once.md"]
    (gone,) = client.memory_diff(committed["archive_uri"])["operations"]["deletes"]
    assert gone["reason"].startswith("superseded by viking://")
