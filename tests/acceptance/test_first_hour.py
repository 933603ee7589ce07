"""The stumbles of a newcomer's first hour, each at the command line or in the client, against real processes."""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from runekeep import Client, Message, TextPart
from runekeep.v1 import session_service_pb2, session_service_pb2_grpc
from tests.acceptance.processes import Processes, environment, processes
from tests.support.fork_server import run_module
from tests.support.scrapes import metrics_address

TOPICS = "tea", "a_very_long_name_of_a_preference_that_somebody_gave_to_a_memory_about_walks_in_the_park"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A server on which the user robin has memories and a session with a long name."""
    folder = tmp_path_factory.mktemp("first_hour")
    with processes(folder) as fleet:
        fleet.server(RUNEKEEP_EMBEDDER="none", RUNEKEEP_METRICS_ADDRESS="127.0.0.1:0")
        with Client(fleet.address, user="robin") as client:
            for topic in TOPICS:
                fields = {"topic": topic, "content": "Robin likes it.\nAlways."}
                client.put_memory("preferences", fields, abstract="What Robin likes")
            session = client.session("a-session-with-a-long-name-that-leaves-little-room")
            session.add_message("user", [TextPart("I like tea.")])
            session.commit()
        yield fleet


def command(
    fleet: Processes, *arguments: str, user: str = "robin", status: int = 0
) -> "subprocess.CompletedProcess[str]":
    variables = {"RUNEKEEP_ADDRESS": fleet.address, "RUNEKEEP_USER": user, "COLUMNS": "80"}
    ran = run_module("runekeep", *arguments, environment=environment(variables))
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("find tea", "memory find"),
        ("memory show x", "memory read"),
        ("task get x", "task show"),
        ("status", "admin status"),
        ("session lst", "session list"),
        ("remember tea", "memory write"),
        ("forget tea", "memory delete"),
    ],
)
def test_a_wrong_command_names_the_right_one(started: Processes, wrong: str, meant: str) -> None:
    said = command(started, *wrong.split(), status=2).stderr
    assert f"`runekeep {meant}`" in " ".join(re.sub("[│╭╮╰╯─]", " ", said).split())


def test_the_version_is_an_option_too(started: Processes) -> None:
    assert command(started, "--version").stdout == command(started, "version").stdout


def test_help_of_serve_names_the_command(started: Processes) -> None:
    said = command(started, "serve", "--help").stdout
    assert said.startswith("usage: runekeep serve") and "python -m" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        *("memory tree", "memory ls", "memory find tea", "recall tea"),
        *("session list", "task list", "history list", "proposal ls"),
    ],
)
def test_a_user_without_anything_is_named(started: Processes, arguments: str) -> None:
    ran = command(started, *arguments.split(), user="robbin")
    said = " ".join((ran.stdout + ran.stderr).split())
    assert "`robbin` has no memories" in said and "Did you mean `robin`?" in said


def test_a_forgotten_user_is_told_which_users_there_are(started: Processes) -> None:
    with Client(started.address, account="few", user="ann") as client:
        client.session("talk").add_message("user", "I like tea.")
    said = " ".join(command(started, "memory", "tree", "--account", "few", user="").stdout.split())
    assert "`default` has no memories" in said and "Users of the account: `ann`." in said
    said = command(started, "memory", "tree", "--account", "nobody", user="").stdout
    assert "`default` has no memories" in said and "Users" not in said
    said = command(started, "session", "show", "talk", "--account", "few", user="anne", status=1).stderr
    assert "There is no session `talk`." in said and "Did you mean `ann`?" in " ".join(said.split())
    assert command(started, "user", "list", "--account", "few").stdout.split()[-1] == "ann"
    listed = json.loads(command(started, "user", "list", "--prefix", "rob", "--json").stdout)
    assert [one["user"] for one in listed["users"]] == ["robin"] and not listed["more"]


def test_what_is_missing_is_named_with_what_is_similar(started: Processes) -> None:
    said = command(started, "memory", "read", "viking://user/memories/preferences/te.md", status=1).stderr
    assert "viking://user/robin/memories/preferences/tea.md" in said and "runekeep memory tree" in said
    said = command(started, "session", "show", "a-session-with-a-long-name-that-leaves-little-rom", status=1).stderr
    assert "Did you mean `a-session-with-a-long-name-that-leaves-little-room`?" in said and "auto_create" not in said
    said = command(started, "history", "rollback", "99", "--yes", status=1).stderr
    assert "runekeep history list" in said and "ListRevisions" not in said
    said = command(started, "memory", "find", "tea", "--type", "nonsense", status=1).stderr
    assert "`runekeep memory types`" in said and "ListMemoryTypes" not in said


def test_lines_of_grep_count_from_one(started: Processes) -> None:
    assert "\n2:Always." in command(started, "memory", "grep", "Always", "--glob", "**/tea.md").stdout
    found = json.loads(command(started, "memory", "grep", "Always", "--glob", "**/tea.md", "--json").stdout)
    assert found["matches"][0]["line"] == 1


def test_long_names_are_readable_at_eighty_columns(started: Processes) -> None:
    lines = command(started, "memory", "tree").stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    # The beginning and the end of the name, and below it what is in it.
    (at,) = (number for number, line in enumerate(lines) if "a_very_long_name" in line)
    assert lines[at].endswith("in_the_park.md") and "What Robin likes" in lines[at + 1]
    told = command(started, "task", "list").stdout
    assert re.search(r"^\S+\n +status pending +session a-session-with-a-long-name-that-leaves-little-room$", told, re.M)


def test_a_recall_before_the_first_message_finds_nothing(started: Processes) -> None:
    with Client(started.address, user="robin") as client:
        assert client.recall(session="c1")["entries"] == []
        assert client.recall("tea", session="c1")["entries"]
        assert client.session("c2").recall()["entries"] == []


def test_a_larger_page_has_two_hundred_rows(started: Processes) -> None:
    with Client(started.address, user="pages") as client:
        for _ in range(3):
            client.session("talk").add_messages([Message("user", [TextPart("Yes.")])] * 70)
    request = session_service_pb2.ListMessagesRequest(session="talk", page_size=1000)
    with grpc.insecure_channel(started.address) as channel:
        stub = session_service_pb2_grpc.SessionServiceStub(channel)
        page = stub.ListMessages(request, metadata=[("x-runekeep-user", "pages")])
    assert len(page.messages) == 200 and page.next_page_token


def test_the_metrics_port_answers_probes(started: Processes) -> None:
    address = metrics_address(started.data_dir.parent / f"{started.data_dir.name}.log")
    with urllib.request.urlopen(f"http://{address}/healthz", timeout=30) as response:
        assert (response.status, response.read()) == (200, b"serving\n")


def test_a_user_is_copied_within_the_account(started: Processes) -> None:
    said = command(started, "user", "copy", "twin").stdout
    assert said.startswith("Copied to twin: ") and "2 memories" in said
    with Client(started.address, user="robin") as one, Client(started.address, user="twin") as twin:
        uri = "viking://user/memories/preferences/tea.md"
        assert twin.read(uri) == one.read(uri)
    refused = command(started, "user", "copy", "twin", status=1).stderr
    assert "SPACE_NOT_EMPTY" in refused and "--replace" in refused
    with Client(started.address, user="robin") as one, Client(started.address, user="twin") as twin:
        twin.put_memory("preferences", {"topic": "own", "content": "The twin likes it."})
        assert one.copy_user("twin", replace=True, request_id="r")["contents"]["memories"] == 2
        twin.put_memory("preferences", {"topic": "new", "content": "The twin likes it."})
        one.copy_user("twin", replace=True, request_id="r")
        assert len(twin.glob("memories/preferences/*.md")["entries"]) == 3, "a repeat changes nothing"
    assert command(started, "user", "copy", "twin", "--replace", "--yes").stdout.startswith("Copied to twin: ")


def test_copy_and_export_say_that_the_user_is_empty(started: Processes, tmp_path: Path) -> None:
    for arguments in (["user", "copy", "empty-twin"], ["export", str(tmp_path / "robbin.tar.gz")]):
        said = " ".join(command(started, *arguments, user="robbin").stdout.split())
        assert "`robbin` has no memories" in said and "Did you mean `robin`?" in said
    with Client(started.address, user="kept") as kept:
        kept.put_memory("preferences", {"topic": "tea", "content": "Kept likes it."})
        refused = command(started, "user", "copy", "kept", "--replace", "--yes", user="robbin", status=1).stderr
        assert "nothing was deleted or copied" in refused and "`robin`" in refused
        assert kept.read("viking://user/memories/preferences/tea.md")


def test_a_session_is_taken_back_after_a_preview(started: Processes) -> None:
    """Two commits of one session change a memory that another session changed before them."""
    extractor = started.extractor("worker", "--engine", "offline")
    with Client(started.address, user="ann") as client:

        def tell(session: str, text: str) -> None:
            with client.session(session) as talk:
                talk.add_message("user", text)
            task = talk.wait(120)
            assert task is not None and task["status"] == "completed"

        def shown() -> set[str]:
            uris = (entry["uri"] for entry in client.glob("memories/**/*.md")["entries"])
            return {client.read(uri) for uri in uris}

        tell("monday", "I prefer tea to juice.")
        before = shown()
        tell("tuesday", "I prefer tea to coffee.")
        tell("tuesday", "I prefer tea to cocoa.")
        assert shown() != before
        planned = json.loads(
            command(started, "session", "rollback", "tuesday", "--preview", "--json", user="ann").stdout
        )
        assert planned["changes"] and not planned["conflicts"] and not planned["revisions"]
        assert "cocoa" in command(started, "session", "rollback", "tuesday", "--preview", user="ann").stdout
        assert shown() != before
        command(started, "session", "rollback", "tuesday", "--yes", user="ann")
        assert shown() == before
        assert "nothing to take back" in command(started, "session", "rollback", "tuesday", "--yes", user="ann").stdout

        tell("tuesday", "I prefer tea to lemonade.")
        memory = next(entry["uri"] for entry in client.glob("memories/preferences/*.md")["entries"])
        version = client.get_memory(memory)["version"]
        client.edit_memory(memory, {"content": "Water."}, base_version=version)
        refused = command(started, "session", "rollback", "tuesday", "--yes", user="ann", status=1)
        assert "other revisions changed" in refused.stderr and memory in refused.stdout
        command(started, "session", "rollback", "tuesday", "--yes", "--force", user="ann")
        assert shown() == before

        reviewed = client.create_session("wednesday", memory_policy={"review": "all"})
        for text in ("I prefer tea to beer.", "I prefer tea to wine."):
            reviewed.add_message("user", text)
            task_id = reviewed.commit()["task_id"]
            client.wait_task(task_id)
            assert client.accept_proposal(task_id)["revision"]
        done = client.rollback_session("wednesday")
        assert len(done["revisions"]) == 2 and not done["conflicts"] and shown() == before
    extractor.send_signal(signal.SIGTERM)
    extractor.wait(60)
