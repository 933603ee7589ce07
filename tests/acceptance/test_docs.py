"""Commands, samples and links of README and pages are run and followed as they stand."""

import ast
import json
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from runekeep import Client, TextPart
from runekeep.cli.app import app
from runekeep_schemas.documents.merge import create, merge_write
from runekeep_schemas.documents.render import file_view
from runekeep_schemas.type_files.registry import Registry
from runekeep_schemas.type_files.schema_file import SchemaError
from tests.acceptance.processes import Processes, environment
from tests.doubles.messages_api import MessagesApi, answer
from tests.support.fork_server import run_module
from tests.support.pages import DEFAULT_ADDRESS, DOCS, ROOT, example, section
from tests.support.server_process import START_SECONDS

README = ROOT / "README.md"
FIRST_AGENT = DOCS / "start" / "first-agent.md"
OF_THE_PROJECT = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]
FOLDER_READMES = [ROOT / "examples" / "README.md", *sorted((ROOT / "clients").glob("*/README.md"))]
PAGES = [*OF_THE_PROJECT, *FOLDER_READMES, *sorted(DOCS.rglob("*.md"))]
COMMAND_SECONDS = 60.0


def finished(command: list[str], cwd: Path = ROOT, **variables: str) -> str:
    """Standard output of a command that ends with 0."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=environment({"COLUMNS": "200", **variables}),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    return well_ended(ended, command)


def runekeep(arguments: list[str], address: str) -> str:
    """As `finished`, of a `runekeep` command; those of the first agent's tour are started as users do."""
    variables = environment({"COLUMNS": "200", "RUNEKEEP_ADDRESS": address})
    return well_ended(run_module("runekeep", *arguments, environment=variables, timeout=COMMAND_SECONDS), arguments)


def well_ended(ended: subprocess.CompletedProcess[str], command: list[str]) -> str:
    assert ended.returncode == 0, f"{shlex.join(command)}: {ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A `runekeep up` on a free port."""
    directory = tmp_path_factory.mktemp("up")
    command = [sys.executable, "-m", "runekeep", "up", "--json", "--address", "127.0.0.1:0"]
    log = directory / "log"
    with log.open("w") as errors:
        up = subprocess.Popen(
            [*command, "--data-dir", str(directory / "data")],
            cwd=ROOT,
            env=environment({"RUNEKEEP_POLL_SECONDS": "0.1"}),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert up.stdout is not None
    try:
        ready, _, _ = select.select([up.stdout], [], [], START_SECONDS)
        line = up.stdout.readline() if ready else ""
        assert line, log.read_text()[-4000:]
        yield str(json.loads(line)["address"])
    finally:
        up.send_signal(signal.SIGTERM)
        try:
            status = up.wait(60)
        except subprocess.TimeoutExpired:
            up.kill()
            raise
        finally:
            up.stdout.close()
    assert status == 0, log.read_text()[-4000:]


def test_the_tour_of_the_first_agent_runs_as_it_stands(address: str, tmp_path: Path) -> None:
    # In a folder of its own that has the examples: the tour writes a file.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = section(FIRST_AGENT, "A whole conversation")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    runekeep ")]
    assert len(lines) >= 12 and max(map(len, lines)) < 76, "with their indent they fit 80 columns"
    tour = [shlex.split(line)[1:] for line in lines]
    shown = {
        tuple(arguments[:2]): finished(
            [sys.executable, "-m", "runekeep", *arguments], tmp_path, RUNEKEEP_ADDRESS=address, COLUMNS="80"
        )
        for arguments in tour
    }
    assert "profile.md" in shown["memory", "tree"]
    assert "20 March" in shown["memory", "find"] and "20 March" in shown["memory", "grep"]
    assert "20 March" in shown["recall", "When does the kiln arrive?"]
    assert "completed" in shown["task", "list"]
    by = dict(
        re.findall(r"^ *(\d+) .*\n[^\n]*/sessions/(studio-[\w-]+)/history/", shown["history", "list"], re.MULTILINE)
    )
    assert by["3"] == "studio-wednesday", shown["history", "list"]
    new, old = "2026-03-20_Kiln.md", "2026-03-16_Kiln.md"
    events = "viking://user/mara/memories/events"
    assert f"{events}/{new}" in shown["history", "sources"]
    preview = shown["history", "rollback"]
    assert f"new {events}/{old}" in preview and f"deleted {events}/{new}" in preview
    assert old in shown["memory", "ls"] and new not in shown["memory", "ls"]
    assert "mara.tar.gz" in shown["export", "mara.tar.gz"] and "49 messages" in shown["import", "mara.tar.gz"]
    assert "Verified: nothing was left" in shown["erase", "message"]
    assert all(len(line) <= 80 for line in shown["history", "list"].splitlines())


def test_the_agent_of_the_readme_remembers_the_conversation_before(address: str) -> None:
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert found and found[1].count("\n") <= 11
    asked = "def ask_model(known, question):\n    print('\\n' + known)\n    return known or 'Nothing.'\n\n"
    agent = asked + found[1].replace(DEFAULT_ADDRESS, address)
    assert "gooseberries" not in talk(agent, "What do I like?")
    talk(agent, "I like gooseberries more than any other fruit.")
    # The message is found once its commit is indexed, which nobody waits for here.
    assert any("gooseberries" in talk(agent, "Which fruit do I like?") for _ in range(20))


def test_the_first_agent_and_its_commands_run_as_they_stand(address: str, tmp_path: Path) -> None:
    code = example(FIRST_AGENT, "agent.py").replace(DEFAULT_ADDRESS, address)
    told = re.search(r"Tell it `(.*?)`", FIRST_AGENT.read_text())
    asked = re.search(r"ask `(.*?)`", FIRST_AGENT.read_text())
    assert told and asked
    assert "completed" in talk(code, told[1])
    assert any("tea" in talk(code, asked[1]) for _ in range(20))
    before = FIRST_AGENT.read_text().partition("## Tools and usage")[0]
    up, *lines = re.findall(r"^    runekeep (.*)$", before, re.MULTILINE)
    assert up.startswith("up ") and len(lines) == 2
    shown = [runekeep(shlex.split(line), address) for line in lines]
    assert "memories" in shown[0] and "tea" in shown[1]


def talk(code: str, *lines: str, **variables: str) -> str:
    """Output of an agent that gets `lines` and then an empty one."""
    command = [sys.executable, "-c", code]
    said = "".join(f"{line}\n" for line in (*lines, ""))
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(variables),
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return well_ended(ended, command)


def test_the_application_of_the_first_page_knows_what_it_was_told_before(address: str) -> None:
    code = example(DOCS / "index.md", "app.py").replace(DEFAULT_ADDRESS, address).replace("robin", "first-page")
    assert code.count("\n") <= 15
    with MessagesApi() as api:
        api.otherwise = answer("Noted.")
        variables = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "any"}
        assert "Noted." in talk(code, "I live in Lisbon, near the river.", **variables)
        for _ in range(20):
            talk(code, "In which city do I live?", **variables)
            if "Lisbon" in str(api.requests[-1].body["system"]):
                return
    raise AssertionError("the model was never told what the user said before")


def test_the_forms_of_messages_run_as_they_stand(address: str) -> None:
    code = example(DOCS / "guides" / "sessions.md", "forms.py").replace(DEFAULT_ADDRESS, address)
    assert finished([sys.executable, "-c", code]).splitlines() == ["completed", "[1, 1, 1]"]


def test_the_writer_of_the_page_runs_as_it_stands(address: str) -> None:
    code = example(DOCS / "guides" / "sessions.md", "writer.py").replace(DEFAULT_ADDRESS, address)
    assert finished([sys.executable, "-c", code]).splitlines() == ["message 1 is durable", "3 messages"]


def test_the_tools_of_the_first_agent_run_as_they_stand(address: str) -> None:
    code = example(FIRST_AGENT, "tools.py")
    assert DEFAULT_ADDRESS in code
    printed = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)])
    *lines, added = printed.splitlines()
    status, *found = lines[lines.index("ended") + 1 :]
    assert status.startswith("completed ") and any("tea" in line for line in found)
    assert sum(bool(re.match(r"\d\.\d\d viking://", line)) for line in found) == 3
    assert ast.literal_eval(added)


def test_the_agent_with_a_model_runs_as_it_stands(address: str) -> None:
    code = example(DOCS / "start" / "with-a-model.md", "model_agent.py").replace(DEFAULT_ADDRESS, address)
    with MessagesApi() as api:
        api.otherwise = answer("Tea, as always.")
        variables = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "any"}
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment(variables),
            input="What shall I drink?\nAnd for breakfast?\n\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert well_ended(ended, ["model_agent.py"]).count("Tea, as always.") == 2
        assert [len(request.body["messages"]) for request in api.requests] == [1, 3]


def test_the_commands_of_the_installation_run_as_they_stand(tmp_path: Path) -> None:
    lines = re.findall(r"^    runekeep (.*)$", (DOCS / "start" / "install.md").read_text(), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        arguments = shlex.split(line)
        if arguments[0] == "up" and "--help" not in arguments:
            arguments.append("--help")  # the fixture `address` starts one
        status = (0, 1) if arguments[0] == "doctor" else (0,)
        ended = subprocess.run(
            [sys.executable, "-m", "runekeep", *arguments],
            cwd=tmp_path,
            env=environment({"PYTHONPATH": str(ROOT)}),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert ended.returncode in status, ended.stderr


def test_the_readme_is_short_and_its_two_commands_come_first() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 120
    assert lines[2].startswith("    make demo") and lines[3].startswith("    make test")


def test_the_sessions_of_the_page_run_as_they_stand(address: str) -> None:
    page = DOCS / "guides" / "sessions.md"
    code = example(page, "sessions.py")
    assert DEFAULT_ADDRESS in code
    live, archived, rules, archives = finished(
        [sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)]
    ).splitlines()
    assert re.fullmatch(r"3 live messages, \d+ tokens", live)
    garden = "viking://user/robin/sessions/garden"
    assert archived == f"{garden}/history/archive_001 of the first three; 1 stays live"
    assert float(rules) == 600
    assert ast.literal_eval(archives) == [(4, 5), (1, 3)]

    lines = re.findall(r"^    runekeep (session .*)$", page.read_text(), re.MULTILINE)
    assert len(lines) >= 5
    told = [runekeep(shlex.split(line), address) for line in lines]
    assert "Commits by itself at 40 live messages, but for the newest 4." in told[0]
    assert "The kitchen" in told[2] and "after 600 s without a message." in told[2]
    assert "No automatic commits" in told[3] and f"{garden}/history/archive_003" in told[5]
    assert '"memory_types": {"names": ["events", "profile"]}' in told[4] and "No session skills" in told[4]


def test_the_turns_of_the_page_run_as_they_stand(address: str) -> None:
    page = DOCS / "guides" / "turn-memory.md"
    code = example(page, "turns.py")
    assert DEFAULT_ADDRESS in code
    printed = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)])
    shown = re.search(r"The prompt \(.*?\):\n\n```\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    assert without_times(printed).startswith(without_times(shown[1]))
    assert ast.literal_eval(printed.splitlines()[-1].partition(" ")[2]) == ["dinner"]

    lines = [shlex.split(line)[1:] for line in re.findall(r"^    (runekeep turn .*)$", page.read_text(), re.MULTILINE)]
    assert len(lines) >= 10
    told = {line[1]: runekeep(line, address) for line in lines}
    assert "turn-1" in told["list"] and "context_hit: dinner" in told["context"]
    assert "too heavy after all" in told["artifacts"] and "wine.box = offered" in told["signals"]
    assert "completed" in told["reconcile"] and "obj-dinner-" in told["buckets"]


def test_the_reconciling_of_the_page_runs_as_it_stands(address: str) -> None:
    code = example(DOCS / "guides" / "turn-memory.md", "reconciling.py")
    assert DEFAULT_ADDRESS in code
    result, *text = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)]).splitlines()
    assert result == "1 True 1"
    assert text[0] == "[TURN MEMORIES — CHRONOLOGICAL (selected; scope=conversation)]"
    memories = text[1 : text.index("")]
    assert [row.split()[1] for row in memories] == ["turn-3", "turn-1"]
    assert "  - text: Thanks!" in text


def without_times(text: str) -> str:
    """A prompt with the times and ages of its run taken out."""
    return re.sub(r"\d\d:\d\d [A-Z][a-z]{2} \d\d \d{4}|\d{4}-\d\d-\d\dT[\d:]+Z|(?<=time_since=)\w+", "…", text)


def test_the_recall_of_the_page_runs_as_it_stands(address: str) -> None:
    page = DOCS / "guides" / "recall.md"
    code = example(page, "recall.py")
    assert DEFAULT_ADDRESS in code
    printed = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)])
    shown = re.search(r"It prints:\n\n```\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    assert printed == shown[1]

    lines = [shlex.split(line)[1:] for line in re.findall(r"^    (runekeep .*)$", page.read_text(), re.MULTILINE)]
    assert len(lines) == 4
    told = [runekeep(line, address) for line in lines]
    assert all("never coffee." in told[number] for number in (0, 1, 3)) and "What shall I offer" in told[2]


def test_the_documents_of_the_page_are_read_as_it_shows(address: str) -> None:
    page = DOCS / "guides" / "documents.md"
    code = example(page, "documents.py")
    assert DEFAULT_ADDRESS in code
    printed = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)])
    shown = re.search(r"It prints:\n\n```\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert shown and printed == shown[1]

    lines = [shlex.split(line)[1:] for line in re.findall(r"^    (runekeep .*)$", page.read_text(), re.MULTILINE)]
    assert len(lines) == 4
    tree, glob, grep, read = [runekeep(line, address) for line in lines]
    assert "Rex.md" in tree and "preferences/Tea.md" in glob and "2 lines in 2 documents." in grep
    assert "1:Drinks nothing but water." in grep and read.startswith("Drinks green tea.")


def test_the_review_of_the_page_runs_as_it_stands(address: str) -> None:
    page = DOCS / "guides" / "review.md"
    code = example(page, "review.py")
    assert DEFAULT_ADDRESS in code
    printed = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)])
    assert printed.splitlines() == re.findall(r"  # (.*)$", code, re.MULTILINE)

    with Client(address) as client:
        session = client.create_session("kitchen", memory_policy={"review": "all"})
        for said in ("I prefer rye bread for breakfast.", "I prefer loud buses.", "I prefer plum jam on my toast."):
            session.add_message("user", [TextPart(said)])
        task = client.wait_task(session.commit()["task_id"])["task_id"]
        lines = re.findall(r"^    (runekeep .*)$", page.read_text(), re.MULTILINE)
        update, ls, show, accept, refuse = [shlex.split(line.replace("TASK", task))[1:] for line in lines]
        runekeep(update, address)
        assert session.info()["memory_policy"] == {
            "self": {"enabled": True},
            "peer": {"enabled": False},
            "memory_types": None,
            "session_skills": None,
            "review": "destructive",
        }
        assert task in runekeep(ls, address)
        shown = runekeep(show, address)
        assert all(one in shown for one in ("rye bread", "loud buses", "plum jam", "open"))
        assert "2 operations are accepted" in runekeep([*accept, "--yes"], address)
        assert "0 of 3 operations open" in runekeep([*refuse, "--yes"], address)
        decided = json.loads(runekeep(["proposal", "show", task, "--json"], address))["operations"]
        assert [one["state"] for one in decided] == ["accepted", "refused", "accepted"]
        assert runekeep(ls, address) == "No proposals.\n"


def test_the_type_example_is_served_and_renders_as_the_page_shows(tmp_path: Path, fleet: Processes) -> None:
    page = DOCS / "guides" / "types.md"
    types = tmp_path / "types"
    types.mkdir()
    (types / "recipes.yaml").write_text(example(page, "recipes.yaml"))
    fleet.server(RUNEKEEP_TYPES_DIRS=str(types))
    with Client(fleet.address) as client:
        served = {entry["name"]: entry for entry in client.memory_types()["memory_types"]}
    assert [field["name"] for field in served["recipes"]["fields"]] == [
        "dish", "vegan", "times_cooked", "total_minutes", "steps",
    ]  # fmt: skip

    recipes = Registry.load([types])["recipes"]
    steps = "Lentils, carrots.\n\n1. Fry.\n2. Boil."
    dish = {"dish": "Lentil soup", "vegan": True, "times_cooked": 1, "total_minutes": 50, "steps": steps}
    more = {"dish": "Lentil soup", "times_cooked": 2, "total_minutes": 70}
    merged = merge_write(recipes, create(recipes, dish), more)
    assert file_view(recipes, merged) in page.read_text()

    broken = (types / "recipes.yaml").read_text().replace("merge_op: sum", "merge_op: add", 1)
    (types / "recipes.yaml").write_text(broken)
    with pytest.raises(SchemaError) as refused:
        Registry.load([types])
    assert str(refused.value).removeprefix(str(tmp_path) + "/") in " ".join(page.read_text().split())


def test_every_relative_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page.name}: {target}")
    assert not broken


def test_every_list_begins_after_an_empty_line() -> None:
    # The site shows other lists as running text.
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^(?![-|#\s]|\d+\.).+\n- .*$", text, re.MULTILINE) == [], page.name


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_command_that_a_page_shows_takes_its_arguments() -> None:
    # Those that change a server of their own are run by tests of their pages; here all of them are parsed.
    parsed = 0
    for page in PAGES:
        if page.parent.name == "contract" or page.name == "cli.md":
            continue
        for line in re.findall(
            r"^    (?:[A-Z_]+=\S+ )*runekeep ([a-z].*?)(?:  +#.*)?$", page.read_text(), re.MULTILINE
        ):
            arguments = shlex.split(line)
            if arguments[0] in ("serve", "extractor") or "--help" in arguments:
                continue  # their arguments go to other programs, or end the command
            command: Any = typer.main.get_command(app)
            context = command.make_context("runekeep", arguments.copy(), resilient_parsing=True)
            while hasattr(command, "commands"):
                name, command, arguments = command.resolve_command(context, arguments)
                assert command is not None, f"{page.name}: {line}"
            try:
                command.make_context(name, arguments, parent=context)
            except typer.BadParameter as error:
                # A file that the reader has.
                assert "does not exist" in str(error), f"{page.name}: {line}: {error}"
            parsed += 1
    assert parsed > 80


def test_every_target_of_make_that_a_page_names_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        # In code alone: "make" is also a word. `make bench-...` stands for several.
        named = re.findall(r"(?:`|^    )make\s([\w-]+)(\.\.\.)?", text, re.MULTILINE)
        unknown = {
            name for name, more in named if not (any(t.startswith(name) for t in targets) if more else name in targets)
        }
        assert not unknown, page.name
    # What contributors run first is the unit tests and nothing else.
    assert {"check", "test-quick", "test"} <= set(re.findall(r"make ([\w-]+)", OF_THE_PROJECT[1].read_text()))


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    named = re.findall(r"`([a-z.]+/[\w/.]*)`", OF_THE_PROJECT[1].read_text())
    assert len(named) >= 5
    assert [path for path in named if not (ROOT / path).exists()] == []
