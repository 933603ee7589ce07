"""Dedup over the real stream and server: an extractor process, the server's embedder, a scripted model."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from runekeep import Client, TextPart, ToolPart
from tests.acceptance.processes import Processes, processes
from tests.doubles.messages_api import MessagesApi, Request, Response, answer

WAIT_SECONDS = 90.0
COFFEE = "viking://user/memories/preferences/Coffee.md"
TEAS = "viking://user/memories/preferences/Teas.md"
_users = count(1)


Decide = Callable[[dict[str, str]], dict[str, Any]]


class Model:
    """Writes what a test lays down for the conversation at hand, and decides about the one candidate as `decide` does,
    which gets the ids of the items by their file names. `asked`: those, of every dedup so far.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nothing is laid down yet."""
        self.writes: list[dict[str, Any]] = []
        self.decide: Decide = lambda items: decided("create")
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: Request) -> Any:
        if "# Candidates" not in request.last_text:
            return told(*self.writes)
        records = [json.loads(text) for text in request.last_text.splitlines() if text.startswith('{"id": "m')]
        self.asked.append({record["name"]: record["id"] for record in records})
        return {"decisions": [self.decide(self.asked[-1])]}


def told(*writes: dict[str, Any]) -> dict[str, Any]:
    summary = {"topic": "Drinks", "intent": "tell", "result": "noted", "status": "done"}
    empty = {"reasoning": "", "edit_operations": [], "delete_operations": []}
    return {**empty, "write_operations": list(writes), "summary": summary}


def write(memory_type: str = "preferences", **fields: Any) -> dict[str, Any]:
    given = [{"name": name, "value": value} for name, value in fields.items()]
    rest = {"peer_id": "", "reason": "said so", "abstract": "", "overview": ""}
    return {"memory_type": memory_type, "fields": given, "ranges": [{"start": 1, "end": 1}], **rest}


def decided(decision: str, *items: tuple[str, str, str], candidate: str = "c1") -> dict[str, Any]:
    """`items`: id, decision, and the new content for a merge."""
    made = [
        {"item": name, "decision": what, "fields": [{"name": "content", "value": content}] if content else []}
        for name, what, content in items
    ]
    return {"candidate": candidate, "decision": decision, "items": made, "reason": "near"}


def extractor(fleet: Processes, api: MessagesApi, worker: str, **settings: str) -> Any:
    model = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "any", "RUNEKEEP_EXTRACTOR_TOOLS": "on"}
    return fleet.extractor(worker, RUNEKEEP_EXTRACTOR_STRUCTURED_OUTPUT="on", **model, **settings)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Processes]:
    """A server and an extractor for the tests of this module, each of which has a user of its own."""
    with MessagesApi() as api, processes(tmp_path_factory.mktemp("dedup")) as fleet:
        api.otherwise = answer(model)
        fleet.server()
        extractor(fleet, api, "worker")
        yield fleet


@pytest.fixture
def client(running: Processes, model: Model) -> Iterator[Client]:
    model.begin()
    with Client(running.address, user=f"user-{next(_users)}") as client:
        yield client


def commit(client: Client, text: str = "I drink only green tea, no coffee.") -> dict[str, Any]:
    """The result of a commit of one message, and its diff."""
    session = client.session()
    session.add_message("user", [TextPart(text)])
    committed = session.commit()
    task = client.wait_task(committed["task_id"], timeout=WAIT_SECONDS)
    assert task["status"] == "completed", task
    assert task["result"] is not None
    return {**task["result"], "diff": client.memory_diff(committed["archive_uri"])["operations"]}


def content(client: Client, uri: str) -> str:
    return str(client.get_memory(uri)["fields"]["content"])


def preferences(client: Client) -> set[str]:
    return {entry["name"] for entry in listed(client) if entry["memory_type"] == "preferences"}


def listed(client: Client) -> list[dict[str, Any]]:
    return [dict(entry) for entry in client.tree("viking://user/memories")["entries"]]


def first_memories(client: Client, model: Model) -> None:
    client.put_memory("preferences", {"topic": "Coffee", "content": "Drinks coffee with milk and some green tea."})
    client.put_memory("preferences", {"topic": "Teas", "content": "Likes green tea, and drinks it without milk."})
    model.writes = [write(topic="Hot drinks", content="Drinks only green tea, no coffee, without milk.")]


NEW = "Drinks only green tea, no coffee any more."


@pytest.mark.parametrize(
    ("decision", "left", "counts"),
    [("skip", {"Coffee", "Teas"}, (1, 1)), ("create", {"Teas", "Hot drinks"}, (0, 0))],
)
def test_a_delete_counts_beside_a_new_memory_alone(
    client: Client, model: Model, decision: str, left: set[str], counts: tuple[int, int]
) -> None:
    first_memories(client, model)
    model.decide = lambda by_name: decided(decision, (by_name["Coffee.md"], "delete", ""))
    result = commit(client)
    (asked,) = model.asked
    assert asked.keys() == {"Coffee.md", "Teas.md"}
    assert preferences(client) == {f"{name}.md" for name in left}
    assert (result["duplicates"], result["dropped_items"]) == counts
    usage = {entry["phase"]: entry["calls"] for entry in result["usage"]}
    assert usage == {"operations": 1, "dedup": 1}


def test_both_a_merge_and_a_delete(client: Client, model: Model) -> None:
    first_memories(client, model)

    def fold(by_name: dict[str, str]) -> dict[str, Any]:
        return decided("none", (by_name["Teas.md"], "merge", NEW), (by_name["Coffee.md"], "delete", ""))

    model.decide = fold
    result = commit(client)
    assert preferences(client) == {"Teas.md"}
    assert content(client, TEAS) == NEW
    diff = result["diff"]
    assert [one["deleted_content"] for one in diff["deletes"]] == ["Drinks coffee with milk and some green tea."]
    assert [one["before"] for one in diff["updates"]] == ["Likes green tea, and drinks it without milk."]


@pytest.mark.parametrize("decision", ["skip", "create", "none"])
def test_events_are_never_merged(client: Client, model: Model, decision: str) -> None:
    model.writes = [write("events", event_name="Moved to Lisbon", event_time="2026-02", content="Moved from Porto.")]
    commit(client, "I moved.")
    model.writes = [
        write("events", event_name="Relocation to Lisbon", event_time="2026-02", content="Moved from Porto to Lisbon.")
    ]
    model.decide = lambda items: decided(decision, ("m1", "delete", ""), ("m1", "merge", "Overwritten."))
    result = commit(client, "I moved to Lisbon.")
    assert len(model.asked) == 1
    there = content(client, "viking://user/memories/events/2026-02_Moved to Lisbon.md")
    assert there == "Moved from Porto."
    assert result["duplicates"] == (decision == "skip")
    events = [one for one in listed(client) if one["memory_type"] == "events"]
    assert len(events) == (1 if decision == "skip" else 2)


def test_the_same_fact_said_in_two_commits_is_one_memory(client: Client, model: Model) -> None:
    """Under another name, so that only dedup can tell."""
    model.writes = [write(topic="Tea", content="Drinks only green tea.")]
    commit(client)
    assert not model.asked, "one call is enough where nothing is near"
    model.writes = [write(topic="Hot drinks", content="Prefers green tea to every other hot drink.")]
    model.decide = lambda items: decided("skip")
    result = commit(client, "As I said: green tea.")
    assert preferences(client) == {"Tea.md"}
    assert result["duplicates"] == 1
    assert client.get_memory("viking://user/memories/preferences/Tea.md")["version"] == 1


def test_a_changed_fact_is_an_update_with_the_old_version_kept(client: Client, model: Model) -> None:
    model.writes = [write(topic="Coffee", content="Drinks coffee black.")]
    commit(client)
    model.writes = [write(topic="Coffee order", content="Takes coffee with oat milk now, no longer black.")]
    model.decide = lambda items: decided("none", ("m1", "merge", "Drinks coffee with oat milk."))
    result = commit(client, "Oat milk from now on.")
    assert preferences(client) == {"Coffee.md"}
    versions = [(one["version"], one["fields"]["content"]) for one in client.versions(COFFEE)]
    assert sorted(versions) == [(1, "Drinks coffee black."), (2, "Drinks coffee with oat milk.")]
    assert len(result["diff"]["updates"]) == 1


def test_hostile_decisions_change_nothing_that_is_there(client: Client, model: Model) -> None:
    first_memories(client, model)
    others = [{"item": uri, "decision": "delete", "fields": []} for uri in ("viking://user/someone/memories", TEAS)]
    hostile = {"candidate": "c1", "decision": "create", "items": others, "reason": "x" * 5000}
    model.decide = lambda items: hostile
    result = commit(client)
    assert preferences(client) == {"Coffee.md", "Teas.md", "Hot drinks.md"}
    assert result["dropped_items"] == 2


@pytest.mark.parametrize("where", ["in dedup", "in delivery"])
def test_an_extractor_killed_between_dedup_and_delivery_makes_its_memories_once(fleet: Processes, where: str) -> None:
    """The killed one had merged a tool's counters and a preference; the next one does it all anew."""
    asked, release, first = threading.Event(), threading.Event(), threading.Lock()
    model = Model()
    model.decide = lambda items: decided("none", ("m1", "merge", NEW))
    model.writes = [
        write(topic="Hot drinks", content="Drinks only green tea, and no coffee."),
        write("tools", tool_name="web_search", total_calls=2, success_count=2),
    ]

    def behave(request: Request) -> Response:
        if where == "in dedup" and "# Candidates" in request.last_text and first.acquire(blocking=False):
            asked.set()
            release.wait(WAIT_SECONDS)
        return answer(model)(request)

    with MessagesApi() as api:
        api.otherwise = behave
        fleet.server(RUNEKEEP_LEASE_SECONDS="2", RUNEKEEP_HEARTBEAT_SECONDS="0.5", RUNEKEEP_FIRST_LEASE_SECONDS="2")
        failpoint = {"RUNEKEEP_FAILPOINT": "output.before_complete:KILL"} if where == "in delivery" else {}
        with Client(fleet.address) as client:
            client.put_memory("preferences", {"topic": "Tea", "content": "Drinks green tea."})
            client.put_memory("tools", {"tool_name": "web_search", "total_calls": 1})
            doomed = extractor(fleet, api, "one", **failpoint)
            session = client.session()
            session.add_message("user", [TextPart("I drink only green tea, no coffee.")])
            calls = [ToolPart(tool_id=one, tool_name="web_search", status="completed") for one in ("c1", "c2")]
            session.add_message("assistant", calls)
            task_id = session.commit()["task_id"]
            try:
                if where == "in dedup":
                    assert asked.wait(WAIT_SECONDS), fleet.log()
                    doomed.send_signal(signal.SIGKILL)
                assert doomed.wait(WAIT_SECONDS) == -signal.SIGKILL
                extractor(fleet, api, "two")
                task = client.wait_task(task_id, timeout=WAIT_SECONDS)
            finally:
                release.set()
            assert task["status"] == "completed", fleet.log()
            assert task["lost_leases"] == 1
            assert preferences(client) == {"Tea.md"}
            tea = client.get_memory("viking://user/memories/preferences/Tea.md")
            assert (tea["version"], tea["fields"]["content"]) == (2, NEW)
            tool = client.get_memory("viking://user/memories/tools/web_search.md")
            assert (tool["version"], tool["fields"]["total_calls"]) == (2, 3)
            assert sum("# Candidates" in call.last_text for call in api.calls) == 2
