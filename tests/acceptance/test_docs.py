"""What README and docs say is tried: the tour, the Python block, the type example, links, words of the tables."""

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

from runekeep import AsyncClient, AsyncSession, Client, Session
from runekeep.cli.app import app
from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from schemas.merge import create, merge_write
from schemas.registry import Registry
from schemas.render import file_view
from schemas.schema_file import SchemaError
from tests.acceptance.processes import Processes, environment
from tests.support.fork_server import run_module
from tests.support.server_process import START_SECONDS

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
OF_THE_PROJECT = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]
PAGES = [*OF_THE_PROJECT, ROOT / "examples" / "README.md", *sorted(DOCS.glob("*.md")), *DOCS.glob("design/*.md")]
DEFAULT_ADDRESS = "127.0.0.1:7433"
COMMAND_SECONDS = 60.0


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next one of its rank or above."""
    text = page.read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"{page.name} has no heading {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def first_cells(text: str) -> set[str]:
    """The words in code style that stand in the first column of tables."""
    return set(re.findall(r"^\| `([A-Za-z_]+)` \|", text, re.MULTILINE))


def example(page: Path, name: str) -> str:
    """The code block behind the mark `<!-- example: NAME -->`."""
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w*\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert found, f"{page.name} has no example {name}"
    return found[1]


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
    """As `finished`, of a `runekeep` command; those of the README's tour are started as users do."""
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


def test_the_tour_of_the_readme_runs_as_it_stands(address: str, tmp_path: Path) -> None:
    # In a folder of its own that has the examples: the tour writes a file.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = [line.strip() for line in section(README, "Five minutes").splitlines() if line.startswith("    runekeep ")]
    assert lines[0].startswith("runekeep up "), lines
    assert max(map(len, lines)) < 76, "with their indent they fit 80 columns"
    tour = [shlex.split(line)[1:] for line in lines[1:]]
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
    new, old = "2026-03-20_The new kiln arrives.md", "2026-03-16_The new kiln arrives.md"
    events = "viking://user/mara/memories/events"
    assert f"{events}/{new}" in shown["history", "sources"]
    preview = shown["history", "rollback"]
    assert f"new {events}/{old}" in preview and f"deleted {events}/{new}" in preview
    assert old in shown["memory", "ls"] and new not in shown["memory", "ls"]
    assert "mara.tar.gz" in shown["export", "mara.tar.gz"] and "49 messages" in shown["import", "mara.tar.gz"]
    assert "Verified: nothing was left" in shown["erase", "message"]
    assert all(len(line) <= 80 for line in shown["history", "list"].splitlines())


def test_the_python_of_the_readme_runs_as_it_stands(address: str) -> None:
    found = re.search(r"^```python\n(.*?)^```$", section(README, "Five minutes"), re.MULTILINE | re.DOTALL)
    assert found
    assert DEFAULT_ADDRESS in found[1]
    printed = finished([sys.executable, "-c", found[1].replace(DEFAULT_ADDRESS, address)])
    updates = [ast.literal_eval(line) for line in printed.splitlines()]
    assert updates[-3]["task"]["status"] == "completed"
    assert any("tea" in json.dumps(item) for item in updates[-2])
    assert updates[-1]["operations"]["adds"]


def test_the_sessions_of_the_page_run_as_they_stand(address: str) -> None:
    page = DOCS / "sessions.md"
    code = example(page, "sessions.py")
    assert DEFAULT_ADDRESS in code
    live, archived, rules, archives = finished(
        [sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)]
    ).splitlines()
    assert re.fullmatch(r"3 live messages, \d+ tokens", live)
    garden = "viking://user/robin/sessions/garden"
    assert archived == f"{garden}/history/archive_001 of the first three; 1 stays live"
    assert ast.literal_eval(rules)["idle"] == 600
    taken = [(of["start_sequence"], of["end_sequence"]) for of in ast.literal_eval(archives)]
    assert taken == [(4, 5), (1, 3)]

    lines = re.findall(r"^    runekeep (session .*)$", page.read_text(), re.MULTILINE)
    assert len(lines) >= 5
    told = [runekeep(shlex.split(line), address) for line in lines]
    assert "Commits by itself at 40 live messages, but for the newest 4." in told[0]
    assert "The kitchen" in told[2] and "after 600 s without a message." in told[2]
    assert "only when it is told to" in told[3] and f"{garden}/history/archive_003" in told[5]
    assert '"memory_types": {"names": ["events", "profile"]}' in told[4] and "No session skills" in told[4]


def test_the_calls_and_fields_of_sessions_are_those_of_the_contract() -> None:
    page = DOCS / "sessions.md"
    service = session_service_pb2.DESCRIPTOR.services_by_name["SessionService"]
    assert first_cells(section(page, "Its life")) == {
        *(method.name for method in service.methods),
        *(field.name for field in session_service_pb2.Session.DESCRIPTOR.fields),
    }
    assert first_cells(section(page, "Commits")) == {
        field.name for field in session_service_pb2.AutoCommit.DESCRIPTOR.fields
    }


def test_the_turns_of_the_page_run_as_they_stand(address: str) -> None:
    page = DOCS / "turn-memory.md"
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
    code = example(DOCS / "turn-memory.md", "reconciling.py")
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
    page = DOCS / "recall.md"
    code = example(page, "recall.py")
    assert DEFAULT_ADDRESS in code
    printed = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)])
    shown = re.search(r"It prints \(.*?\):\n\n```\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    day = re.compile(r"as of \d{4}-\d\d-\d\d")
    assert day.sub("as of", printed) == day.sub("as of", shown[1])

    lines = [shlex.split(line)[1:] for line in re.findall(r"^    (runekeep .*)$", page.read_text(), re.MULTILINE)]
    assert len(lines) == 3
    told = [runekeep(line, address) for line in lines]
    assert all("never coffee." in text for text in told[:2]) and "What shall I offer" in told[2]


def test_the_documents_of_the_page_are_read_as_it_shows(address: str) -> None:
    page = DOCS / "documents.md"
    code = example(page, "documents.py")
    assert DEFAULT_ADDRESS in code
    printed = finished([sys.executable, "-c", code.replace(DEFAULT_ADDRESS, address)])
    shown = re.search(r"It prints:\n\n```\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert shown and printed == shown[1]

    lines = [shlex.split(line)[1:] for line in re.findall(r"^    (runekeep .*)$", page.read_text(), re.MULTILINE)]
    assert len(lines) == 4
    tree, glob, grep, read = [runekeep(line, address) for line in lines]
    assert "Rex.md" in tree and "preferences/Tea.md" in glob and "2 lines in 2 documents." in grep
    assert "0:Drinks nothing but water." in grep and read.startswith("Drinks green tea.")


def test_the_calls_of_documents_are_those_of_the_contract_and_the_client() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section(DOCS / "documents.md", "Calls"), re.MULTILINE)
    assert [call for call, _, _ in rows] == [
        method.name
        for method in memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"].methods
        if "as_of" in method.input_type.fields_by_name and method.name != "FindMemories"
    ]
    commands: Any = typer.main.get_command(app)
    for _, python, told in rows:
        assert all(hasattr(Client, name) for name in re.findall(r"client\.(\w+)", python))
        assert set(re.findall(r"runekeep memory (\w+)", told)) <= set(commands.commands["memory"].commands)


def test_the_levels_of_recalls_are_those_of_the_contract() -> None:
    names = memory_service_pb2.RecallLevel.keys()
    levels = {name.removeprefix("RECALL_LEVEL_").lower() for name in names}
    page = DOCS / "recall.md"
    assert first_cells(section(page, "Levels")) == levels - {"unspecified"}
    parts = {field.name for field in session_service_pb2.GetSessionContextResponse.DESCRIPTOR.fields}
    assert first_cells(section(page, "The context of a session")) < parts


def test_the_calls_of_turn_memory_are_those_of_the_contract_the_client_and_the_command() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \| `([\w-]+).*?` \|$", section(DOCS / "turn-memory.md", "Calls"), re.MULTILINE
    )
    service = turn_memory_service_pb2.DESCRIPTOR.services_by_name["TurnMemoryService"]
    assert [call for call, _, _ in rows] == [method.name for method in service.methods]
    homes = {"session": (Session, AsyncSession), "client": (Client, AsyncClient)}
    for owner, name in re.findall(r"`(session|client)\.(\w+)`", "".join(python for _, python, _ in rows)):
        assert all(hasattr(home, name) for home in homes[owner]), f"{owner}.{name}"
    commands: Any = typer.main.get_command(app)
    assert {command for _, _, command in rows} == set(commands.commands["turn"].commands)


def test_the_fields_and_words_of_turn_memory_are_those_of_the_contract() -> None:
    text = section(DOCS / "turn-memory.md", "Fingerprints")
    fields = {
        field.name
        for message in (turn_memory_service_pb2.TurnFingerprint, turn_memory_service_pb2.TurnSignal)
        for field in message.DESCRIPTOR.fields
    }
    # The other table tells who wins; its rows are no names of fields.
    assert first_cells(text) == fields
    for enum in ("SignalSeverity", "SignalScope"):
        assert words_of(enum) <= set(re.findall(r"`(\w+)`", text)), enum
    assert first_cells(section(DOCS / "turn-memory.md", "What each audience sees")) == words_of("ContextAudience")
    assert words_of("Reaction") | words_of("FeedbackOrigin") <= set(
        re.findall(r"`(\w+)`", section(DOCS / "turn-memory.md", "Feedback"))
    )


def words_of(enum: str) -> set[str]:
    """The words of an enum of turn memory, as the client says them."""
    values = turn_memory_service_pb2.DESCRIPTOR.enum_types_by_name[enum].values
    prefix = re.sub(r"(?<!^)([A-Z])", r"_\1", enum).upper() + "_"
    return {value.name.removeprefix(prefix).lower() for value in values} - {"unspecified"}


def test_the_type_example_is_served_and_renders_as_the_page_shows(tmp_path: Path, fleet: Processes) -> None:
    page = DOCS / "memory-types.md"
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


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


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


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(((?:design/)?[\w-]+\.md)\)", (DOCS / "README.md").read_text()))
    pages = [*DOCS.glob("*.md"), *DOCS.glob("design/*.md")]
    assert linked == {str(page.relative_to(DOCS)) for page in pages} - {"README.md"}


def literals_returned(function: ast.FunctionDef) -> set[str]:
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    parts = [part for value in returned for part in ast.walk(value)]
    return {str(part.value) for part in parts if isinstance(part, ast.Constant)}


def test_the_reasons_of_what_is_left_out_are_those_of_the_code() -> None:
    used: set[str] = set()
    for file in (ROOT / "server" / "apply").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="Skipped" | "_Refused"), args=[reason, *_]):
                    assert isinstance(reason, ast.Constant), f"{file.name}:{node.lineno}: a reason is a literal word"
                    used.add(str(reason.value))
                case ast.FunctionDef(name="_word"):
                    used |= literals_returned(node)
                case ast.Dict(keys=[ast.Constant(value="reason"), *_], values=[ast.Constant(value=word), *_]):
                    used.add(str(word))
    text = section(DOCS / "concepts.md", "What a task says")
    documented = first_cells(text[text.index("Reasons in `skipped`") :])
    assert len(used) >= 12
    assert documented == used


def test_the_outcomes_of_commits_are_those_of_the_contract() -> None:
    outcomes = {name.removeprefix("COMMIT_OUTCOME_").lower() for name in task_service_pb2.CommitOutcome.keys()}  # noqa: SIM118 (an enum is no dict)
    text = section(DOCS / "concepts.md", "What a task says")
    assert first_cells(text[: text.index("The result:")]) == outcomes - {"unspecified"}
    fields = {field.name for field in task_service_pb2.CommitResult.DESCRIPTOR.fields}
    result = text[text.index("The result:") : text.index("Reasons in `skipped`")]
    named = set(
        re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in result.splitlines() if row.startswith("|")))
    )
    assert named == fields


def test_the_reasons_of_errors_are_those_of_the_contract() -> None:
    reasons = {name.removeprefix("ERROR_REASON_") for name in common_pb2.ErrorReason.keys()}  # noqa: SIM118 (an enum is no dict)
    assert set(re.findall(r"^## (\w+)$", (DOCS / "failures.md").read_text(), re.MULTILINE)) == reasons - {"UNSPECIFIED"}


def test_the_classes_of_failures_are_those_of_the_contract() -> None:
    names = extractor_service_pb2.FailureClass.keys()
    classes = {name.removeprefix("FAILURE_CLASS_").lower() for name in names}
    assert first_cells(section(DOCS / "extractors.md", "Failures")) == classes - {"unspecified"}


def test_the_built_in_types_are_those_of_the_registry() -> None:
    assert first_cells(section(DOCS / "memory-types.md", "Built in")) == set(Registry.load().names())
