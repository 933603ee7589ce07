"""The command that takes whole transcripts in."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.options import Account, Address, AsJson
from runekeep.cli.output import FAILED, Output, counted, fail, fail_with

if TYPE_CHECKING:
    from rich.progress import Progress

    from runekeep.client.face import Client
    from runekeep.client.results import Commit, CommitResult, Task
    from runekeep.transcripts.batches import Batch

_CALL_MESSAGES = 100
_CALL_BYTES = 1024 * 1024
_FULL_ATTEMPTS = 1000


@dataclass(slots=True)
class Committed:
    """A batch after its commit; `task` once its extraction has ended and was waited for."""

    batch: "Batch"
    user: str
    commit: "Commit"
    task: "Task | None" = None


def ingest(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A transcript.")],
    form: Annotated[str, typer.Option("--form", help="chat, locomo, or auto to find out.")] = "auto",
    session: Annotated[
        str, typer.Option("--session", help="Session of a chat that names none (else the file's name).")
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this conversation of a LoCoMo file.")
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Also write memory about peers.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the extraction.")] = False,
    address: Address = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user", metavar="ID", help="Whose memory (else the name of a LoCoMo conversation, else RUNEKEEP_USER)."
        ),
    ] = None,
    account: Account = None,
    as_json: AsJson = False,
) -> None:
    """Add a chat transcript to sessions, commit them, and wait for their memories.

    Chats are JSON lines of messages in Anthropic's or OpenAI's form, with tool calls and results. LoCoMo files become
    one session and one commit for each of their sessions. Ends with 1 when a commit fails.
    """
    from runekeep.client.errors import RunekeepError
    from runekeep.transcripts.batches import TranscriptError
    from runekeep.transcripts.files import read_transcript

    if form not in ("auto", "chat", "locomo"):
        raise typer.BadParameter("it is auto, chat or locomo", param_hint="--form")
    output = Output(as_json)
    try:
        batches = read_transcript(file, form=form, session_id=session)  # type: ignore[arg-type]  # checked above
    except (TranscriptError, OSError) as error:
        fail(str(error), "The forms are described in `runekeep ingest --help` and in examples/README.md.")
    if only:
        batches = [batch for batch in batches if batch.user in only]
    if not batches:
        fail("there is no message in the file" if not only else "no conversation of the file has that name")
    try:
        committed = _take_in(batches, (address, account, user), output, peers=peers, wait=not no_wait)
    except RunekeepError as error:
        fail_with(error)
    _conclude(output, committed)


def _take_in(
    batches: "list[Batch]",
    target: tuple[str | None, str | None, str | None],
    output: Output,
    *,
    peers: bool,
    wait: bool,
) -> list[Committed]:
    from contextlib import ExitStack

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from runekeep.client.face import Client

    address, account, user = target
    policy = {"peer": {"enabled": True}} if peers else None
    committed: list[Committed] = []
    columns = (
        TextColumn("{task.description:<30}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(*columns, console=_drawing(output), disable=output.as_json))
        owners = {user or batch.user for batch in batches}
        clients = {owner: stack.enter_context(Client(address, account=account, user=owner or None)) for owner in owners}
        added = progress.add_task("messages", total=sum(len(batch.messages) for batch in batches))
        done = progress.add_task("commits", total=len(batches))
        for batch in batches:
            owner = user or batch.user
            commit = _send(clients[owner], batch, policy, progress, added)
            committed.append(Committed(batch, owner, commit))
            if not wait:
                progress.advance(done)
        for one in committed if wait else ():
            if one.commit["task_id"]:
                one.task = _follow(clients[one.user], one, progress, done)
            progress.advance(done)
        progress.update(done, description="commits")
    return committed


def _drawing(output: Output) -> Any:
    from rich.console import Console

    return Console(stderr=True) if output.as_json else output.console


def _send(client: "Client", batch: "Batch", policy: dict[str, Any] | None, progress: "Progress", bar: Any) -> "Commit":
    session = client.session(batch.session_id)
    for piece in _pieces(batch):
        session.add_messages(piece)
        progress.advance(bar, len(piece))
    for usage in batch.usages:
        session.used(usage.contexts, usage.skill)
    return _commit(session, policy)


def _commit(session: Any, policy: dict[str, Any] | None) -> "Commit":
    """Waits where the server has too many open commits: it says for how long."""
    from runekeep.client.errors import ResourceExhaustedError

    for _ in range(_FULL_ATTEMPTS):
        try:
            result: Commit = session.commit(policy)
            return result
        except ResourceExhaustedError as error:
            if error.reason != "COMMIT_BACKLOG_FULL":
                raise
            time.sleep(error.retry_after or 1.0)
    fail("the server has had too many open commits for too long", "Are extractors running?")


def _pieces(batch: "Batch") -> list[list[Any]]:
    """The messages in as few calls as the server takes: 100 messages and about 1 MiB each."""
    from runekeep.client.messages import message_to_wire

    pieces: list[list[Any]] = []
    size = 0
    for message in batch.messages:
        weight = message_to_wire(message).ByteSize()
        if not pieces or len(pieces[-1]) == _CALL_MESSAGES or size + weight > _CALL_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(message)
        size += weight
    return pieces


def _follow(client: "Client", one: Committed, progress: "Progress", bar: Any) -> "Task":
    name = one.batch.session_id[:16]
    for update in client.watch_task(one.commit["task_id"]):
        if update["kind"] == "progress":
            phase = (update["progress"]["phase"] or "").replace("_", " ")
            progress.update(bar, description=f"{name} {phase} {update['progress']['percent']}%"[:30])
        elif update["kind"] == "ended":
            return update["task"]
    raise AssertionError("a watch ends with the task")


def _conclude(output: Output, committed: list[Committed]) -> None:
    words = [_word(one) for one in committed]
    counts = Counter(words)
    memories: Counter[str] = Counter()
    for one in committed:
        if result := _applied(one):
            memories.update(result["memories_extracted"])
    summary = {
        "messages": sum(len(one.batch.messages) for one in committed),
        "left_out_lines": sum(one.batch.left_out for one in committed),
        "commits": len(committed),
        "outcomes": dict(counts),
        "yielded_nothing": sum(1 for one in committed if _yielded_nothing(one)),
        "memories_extracted": dict(memories),
    }
    if output.as_json:
        details = [
            {"session": one.batch.session_id, "user": one.user, "messages": len(one.batch.messages), "outcome": word}
            | {"commit": one.commit, "task": one.task}
            for one, word in zip(committed, words, strict=True)
        ]
        output.json({**summary, "details": details})
    else:
        _draw(output, committed, words, summary)
    if any(one.task and one.task["status"] != "completed" for one in committed):
        raise typer.Exit(FAILED)


def _draw(output: Output, committed: list[Committed], words: list[str], summary: dict[str, Any]) -> None:
    from rich.text import Text

    from runekeep.cli.task_results import changes

    styles = {"applied": "green", "partly_rejected": "yellow", "nothing_applied": "yellow"}
    rows = []
    for one, word in zip(committed, words, strict=True):
        result = _applied(one)
        ended_badly = one.task is not None and one.task["status"] in ("failed", "cancelled")
        rows.append(
            (
                one.batch.session_id,
                len(one.batch.messages),
                Text(word.replace("_", " "), style="red" if ended_badly else styles.get(word, "dim")),
                "" if result is None else changes(result),
                one.task["error"]["message"]
                if one.task and one.task["status"] == "failed" and one.task["error"]
                else "",
            )
        )
    output.rows(("session", "messages", "outcome", "memories", ""), rows, "No commits.")
    by_type = ", ".join(f"{count} {name}" for name, count in sorted(summary["memories_extracted"].items()))
    commits = counted(summary["commits"], "commit", "commits")
    output.say(
        f"\n{counted(summary['messages'], 'message', 'messages')} in {commits}, "
        f"{summary['yielded_nothing']} of them yielded nothing. {by_type}"
    )
    if summary["left_out_lines"]:
        output.say(f"{summary['left_out_lines']} system prompts were left out.", "dim")


def _word(one: Committed) -> str:
    if one.commit["status"] == "skipped":
        return "skipped"
    if one.task is None:
        return "queued"
    result = one.task["result"]
    return result["outcome"] if result is not None else one.task["status"]


def _applied(one: Committed) -> "CommitResult | None":
    return one.task["result"] if one.task and one.task["status"] == "completed" else None


def _yielded_nothing(one: Committed) -> bool:
    result = _applied(one)
    return result is not None and not result["total_adds"] + result["total_updates"] + result["total_deletes"]
