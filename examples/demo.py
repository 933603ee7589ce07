"""What `make demo` runs: talk goes in, memory comes out, on a server of its own in a temporary directory.

With `--studio` it then leaves the studio open on what is remembered, until Ctrl-C.

Ends with 0 when every search finds what the sample says, the correction made a new version of a memory, what is told
of it keeps to its budget, the correction could be taken back, and no process is left; with 1 otherwise.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from runekeep import Client, RunekeepError, TextPart
from runekeep.cli.memories.memories import render_tree
from runekeep.cli.memories.search import render_result
from runekeep.cli.processes.supervisor import module_command
from runekeep.client.sessions.results import MemoryDiff
from runekeep.client.tasks.results import Task
from runekeep.transcripts.batches import Batch
from runekeep.transcripts.files import read_transcript

HERE = Path(__file__).parent
SAMPLE = HERE / "conversation.jsonl"
EXPECTED = HERE / "conversation.expect.json"
USER = "mara"
POLICY = {"self": {"enabled": True}, "peer": {"enabled": True}}
MAX_SECONDS = 115
SEARCH_RESULTS = 3
RECALL_TOKENS = 400
RECALL_ENTRIES = 6
RECALL_PASSAGES = 2

console = Console(highlight=False)


class DemoFailed(Exception):
    """The demo did not show what it should."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Talk goes in, memory comes out.")
    parser.add_argument("--studio", action="store_true", help="leave the studio open on what is remembered")
    studio = parser.parse_args().studio
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(MAX_SECONDS)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="runekeep-demo-") as directory,
            running(Path(directory)) as serving,
            Client(serving["address"], user=USER) as client,
        ):
            show(client, read_transcript(SAMPLE))
            if studio:
                signal.alarm(0)
                open_studio(serving["address"])
    except (DemoFailed, RunekeepError) as error:
        console.print(Text(f"\nThe demo failed: {error}", style="bold red"))
        return 1
    finally:
        signal.alarm(0)
    console.print(Text("\nEverything was found, and no process is left.", style="bold green"))
    return 0


def show(client: Client, batches: list[Batch]) -> None:
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    heading("Talk goes in, memories come out")
    tasks = [commit(client, batch) for batch in batches]
    say_who_worked(tasks)
    revision = max(task.result.revision for task in tasks if task.result)
    diffs = [client.memory_diff(task.archive_uri) for task in tasks]

    heading("What is remembered: the user's own memory, and that of the peers")
    for part in ("memories", "peers"):
        console.print(render_tree(client.tree(f"viking://user/{USER}/{part}", level_limit=8), console.width))

    corrected = corrected_memory(diffs, expected["correction"])
    heading("One memory, and the messages it came from")
    show_memory(client, corrected)
    heading("memory_diff.json of the last commit")
    text = client.read(f"{tasks[-1].archive_uri}/memory_diff.json")
    say_json(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    heading(f"The versions of what message {expected['correction']} corrected")
    show_versions(client, corrected)
    heading("Three searches")
    wait_until_searchable(client, revision)
    search(client, expected["expect"], texts_of(batches), revision)
    heading(f"What a model would be told of it, in at most {RECALL_TOKENS} tokens")
    recall(client, expected["recall"])
    heading(f"What would change if the commit of message {expected['correction']} were taken back")
    preview_rollback(client, corrected)


@contextmanager
def running(directory: Path) -> Iterator[dict[str, Any]]:
    """A server and two extractors; all of them have ended afterwards, or it raises DemoFailed."""
    log = directory / "processes.log"
    command = module_command(
        "runekeep",
        ["up", "--json", "--address", "127.0.0.1:0", "--extractors", "2", "--data-dir", str(directory / "data")],
    )
    with log.open("wb") as errors:
        supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    pids: list[int] = []
    try:
        assert supervisor.stdout is not None
        line = supervisor.stdout.readline()
        if not line:
            say_log(log)
            raise DemoFailed("the processes did not start")
        serving = json.loads(line)
        pids = list(serving["pids"].values())
        processes = ", ".join(map(str, pids))
        say(Text(f"Serving on {serving['address']}, processes {processes}, data in {directory}"))
        yield serving
    except DemoFailed:
        raise
    except BaseException:
        say_log(log)
        raise
    finally:
        supervisor.terminate()
        supervisor.wait()
        if supervisor.stdout is not None:
            supervisor.stdout.close()
        left = [pid for pid in pids if alive(pid)]
        if left:
            raise DemoFailed(f"processes are left: {left}")


def open_studio(address: str) -> None:
    """The pages in a browser, until Ctrl-C."""
    heading(f"The studio: log in as {USER}. Ctrl-C ends it")
    command = module_command("runekeep", ["studio", "--address", address, "--operator"])
    with subprocess.Popen(command) as process:
        # Ctrl-C reaches the studio too, which ends by itself.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if process.wait():
            raise DemoFailed("the studio could not start")


def say_log(log: Path) -> None:
    """The end of what the processes logged."""
    console.print(Text(log.read_text(encoding="utf-8", errors="replace")[-4000:], style="dim"))


def commit(client: Client, batch: Batch) -> Task:
    """Sends one session and follows its extraction to the end."""
    session = client.session(batch.session_id)
    session.add_messages(batch.messages)
    for usage in batch.usages:
        session.used(usage.contexts, usage.skill)
    result = session.commit(POLICY)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(batch.session_id, total=100)
        for update in client.watch_task(result.task_id):
            if update.kind == "progress":
                now = update.progress
                progress.update(bar, completed=now.percent, description=f"{batch.session_id} {now.phase}")
                if not console.is_terminal:
                    console.print(Text(f"  {now.percent:>3} % {now.phase} {now.message}", style="dim"))
            elif update.kind == "ended":
                task = update.task
    outcome = task.result
    if outcome is None or task.status != "completed":
        raise DemoFailed(f"the commit of {batch.session_id} is {task.status}: {task.error}")
    counts = ", ".join(f"{count} {name}" for name, count in outcome.memories_extracted.items())
    say(Text(f"{batch.session_id}: {len(batch.messages)} messages, {outcome.outcome}: {counts}"))
    return task


def say_who_worked(tasks: list[Task]) -> None:
    makers = {
        (task.result.extractor.engine, task.result.extractor.model)
        for task in tasks
        if task.result and task.result.extractor
    }
    for engine, model in sorted(makers):
        what = "its rules" if engine == "offline" else f"the model '{model}'"
        console.print(Text(f"Extracted by the engine '{engine}' with {what}.", style="bold"))


def corrected_memory(diffs: list[MemoryDiff], message_id: str) -> str:
    """URI of the memory that a message changed, as the commits' diffs tell."""
    for diff in diffs:
        for change in diff.operations.updates:
            if message_id in change.message_ids and change.memory_type != "tools":
                return str(change.uri)
    raise DemoFailed(f"message {message_id} corrects an earlier statement, and no memory was changed by it")


def show_memory(client: Client, uri: str) -> None:
    memory = client.get_memory(uri)
    say(Text(f"{uri}  version {memory.version}", style="bold cyan"))
    say(Text(memory.content))
    for source in memory.sources:
        say(Text(f"from message {source.message_id} of {source.session}", style="magenta"))


def show_versions(client: Client, uri: str) -> None:
    versions = list(client.versions(uri))
    if len(versions) < 2:
        raise DemoFailed(f"{uri} was corrected and has one version only")
    for version in versions:
        content = client.get_memory(uri, version.version).content
        console.print(Text(f"version {version.version}, revision {version.revision}", style="bold yellow"))
        say(Text(content))


def wait_until_searchable(client: Client, revision: int) -> None:
    """Passages have a watermark of their own, so both are waited for."""
    while client.find("anything", min_revision=revision).pending_passages:
        time.sleep(0.1)


def search(client: Client, expected: list[dict[str, str]], texts: dict[str, str], revision: int) -> None:
    """Each query must have among its first results the phrase that its message of the sample says."""
    missed, checked = [], 0
    for one in expected:
        console.print(Text(f"\n{one['query']}", style="bold"))
        results = client.find(one["query"], limit=SEARCH_RESULTS, view="full", min_revision=revision).results
        for item in results:
            say(render_result(item))
        said = re.search(one["pattern"], texts.get(one["message"], ""))
        if said is None:
            console.print(Text(f"Not checked: message {one['message']} does not say so any more.", style="yellow"))
            continue
        checked += 1
        phrase = said[1]
        if any(phrase in item.content + item.text for item in results):
            console.print(Text(f"has {phrase!r}, as message {one['message']} says", style="green"))
        else:
            missed.append(f"{one['query']!r} should find {phrase!r}")
    if missed or not checked:
        raise DemoFailed("; ".join(missed) or "no search could be checked against the sample")


def recall(client: Client, query: str) -> None:
    """The text is what goes into a prompt."""
    told = client.recall(query, token_budget=RECALL_TOKENS, limit=RECALL_ENTRIES, quotas={"passages": RECALL_PASSAGES})
    console.print(Text(query, style="bold"))
    say(Text(told.text))
    if not told.entries or told.tokens > RECALL_TOKENS:
        raise DemoFailed(f"{len(told.entries)} entries were recalled, in {told.tokens} tokens")
    console.print(Text(f"{told.tokens} tokens", style="green"))


def preview_rollback(client: Client, corrected: str) -> None:
    """Nothing is written: the newest version of the memory, and what else came with it, is as it was."""
    revision = next(iter(client.versions(corrected))).revision
    changes = client.rollback(revision, preview=True).changes
    if corrected not in {change.uri for change in changes}:
        raise DemoFailed(f"to take back revision {revision} would leave {corrected} as it is")
    for change in changes:
        word = "deleted" if not change.after else "as before" if change.before else "there again"
        say(Text(f"{word:<11}  {change.uri}"))
    console.print(Text(f"Only a preview: runekeep history rollback {revision} would do it.", style="dim"))


def texts_of(batches: list[Batch]) -> dict[str, str]:
    """What each message of the sample says, by its id."""
    return {
        message.id: " ".join(part.text for part in message.parts if isinstance(part, TextPart))
        for batch in batches
        for message in batch.messages
    }


def say(text: Text) -> None:
    """Only a terminal breaks lines, so that URIs can be copied whole."""
    console.print(text, soft_wrap=True)


def say_json(text: str) -> None:
    if console.is_terminal:
        console.print(Syntax(text, "json", background_color="default", word_wrap=True))
    else:
        say(Text(text))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def heading(text: str) -> None:
    console.print()
    console.print(Rule(Text(text, style="bold"), align="left"))


def _too_long(number: int, frame: object) -> None:
    raise DemoFailed(f"it took more than {MAX_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
