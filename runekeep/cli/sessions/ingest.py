"""The command that ingests transcripts."""

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runekeep.cli.common.errors import FAILED, fail, fail_with
from runekeep.cli.common.formats import format_count
from runekeep.cli.common.options import Account, Address, AsJson
from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress

    from runekeep.client.sessions.messages import Message
    from runekeep.client.sessions.results import Commit
    from runekeep.client.sessions.session import Session
    from runekeep.client.sync_client import Client
    from runekeep.client.tasks.results import CommitResult, Task
    from runekeep.transcripts.batches import Batch

_MAX_COMMIT_ATTEMPTS = 1000


@dataclass(slots=True)
class CommittedBatch:
    """A batch and its commit. `task` is set once its extraction has ended, unless nobody waits for it."""

    batch: "Batch"
    user: str
    commit: "Commit"
    task: "Task | None" = None
    conflicts: int = 0
    """Messages that the session has under the same id with another content."""


def ingest(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Transcript.")],
    form: Annotated[
        str,
        typer.Option(
            "--form",
            help="chat, chatgpt, claude, claude-code, codex, letta, locomo, mem0, openviking, zep; auto detects it.",
        ),
    ] = "auto",
    session: Annotated[
        str, typer.Option("--session", help="Session for a chat that names none (default: the file name).")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this conversation of a LoCoMo file; may repeat."),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Also extract memories about peers.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the sessions and messages that the file would become.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the extraction.")] = False,
    address: Address = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user", metavar="ID", help="User (default: the name of a LoCoMo conversation, else RUNEKEEP_USER)."
        ),
    ] = None,
    account: Account = None,
    as_json: AsJson = False,
) -> None:
    """Add a chat transcript to sessions, commit them, and wait for their memories.

    Chats are JSON lines of messages in Anthropic's or OpenAI's form, with tool calls and results. The exports of
    ChatGPT and Claude, as conversations.json or as the ZIP archive, become a session and a commit for each
    conversation, the oldest first; so do LoCoMo files for each of their sessions. A transcript of Claude Code or
    Codex becomes one session. Memories of mem0, packs of OpenViking, agent files of Letta and messages of Zep become
    sessions with the words as they are. A command that was interrupted is started again: it adds nothing twice. The
    exit status is 1 if a commit fails.
    """
    from runekeep.client.connection.errors import RunekeepError
    from runekeep.transcripts.batches import TranscriptError
    from runekeep.transcripts.files import FORMS, read_transcript

    if form not in FORMS:
        raise typer.BadParameter(f"expected one of {', '.join(FORMS)}", param_hint="--form")
    output = Output(as_json)
    try:
        batches = read_transcript(file, form=form, session_id=session)  # type: ignore[arg-type]  # checked above
    except (TranscriptError, OSError) as error:
        fail(str(error), "The forms are described in `runekeep ingest --help` and in docs/guides/ingest.md.")
    if only:
        batches = [batch for batch in batches if batch.user in only]
    if not any(map(_has_content, batches)):
        fail("the file has no messages" if not only else "no conversation of the file has that name")
    if dry_run:
        _preview(output, batches, user)
        return
    try:
        committed = _ingest_batches(batches, (address, account, user), output, peers=peers, wait=not no_wait)
    except RunekeepError as error:
        fail_with(error)
    except ValueError as error:
        # A message that no call can carry.
        fail(str(error))
    _report(output, committed, left_out=sum(batch.left_out for batch in batches))


def _has_content(batch: "Batch") -> bool:
    """Returns whether there is anything to send: a conversation of an export may have no text."""
    return bool(batch.messages or batch.usages)


def _owner(batch: "Batch", user: str | None) -> str:
    """Returns the user whose memory it becomes; empty: the one that the server chooses."""
    return user or batch.user or os.environ.get("RUNEKEEP_USER", "")


def _preview(output: Output, batches: "list[Batch]", user: str | None) -> None:
    """Shows what the file would become. No server is asked."""
    rows = [
        {
            "session": batch.session_id,
            "user": _owner(batch, user),
            "messages": len(batch.messages),
            "first": min(times).isoformat()
            if (times := [one.created_at for one in batch.messages if one.created_at])
            else "",
            "last": max(times).isoformat() if times else "",
            "left_out": batch.left_out,
        }
        for batch in batches
    ]
    if output.as_json:
        output.json({"messages": sum(len(batch.messages) for batch in batches), "sessions": rows})
        return
    columns = ["session", "messages", "first", "last", "left_out"]
    owners = {row["user"] for row, batch in zip(rows, batches, strict=True) if _has_content(batch)}
    if len(owners) > 1:
        columns.insert(1, "user")
        owner_text = f"{len(owners)} users"
    else:
        (owner,) = owners
        owner_text = f"the user `{owner}`" if owner else "the user of your key, or `default` if it names none"
    dates = ("first", "last")
    shown = [[str(row[name])[:10] if name in dates else row[name] for name in columns] for row in rows]
    output.rows([name.replace("_", " ") for name in columns], shown, "No messages.", stack=True)
    total = format_count(sum(len(batch.messages) for batch in batches), "message", "messages")
    commits = format_count(sum(map(_has_content, batches)), "commit", "commits")
    output.say(f"\n{total} in {commits}, for {owner_text}. Nothing was sent.")


def _ingest_batches(
    batches: "list[Batch]",
    target: tuple[str | None, str | None, str | None],
    output: Output,
    *,
    peers: bool,
    wait: bool,
) -> list[CommittedBatch]:
    from contextlib import ExitStack

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from runekeep.client.sync_client import Client

    address, account, user = target
    batches = [batch for batch in batches if _has_content(batch)]
    policy = {"peer": {"enabled": True}} if peers else None
    committed: list[CommittedBatch] = []
    columns = (
        TextColumn("{task.description:<30}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(*columns, console=_progress_console(output), disable=output.as_json))
        owners = {_owner(batch, user) for batch in batches}
        clients = {owner: stack.enter_context(Client(address, account=account, user=owner or None)) for owner in owners}
        added = progress.add_task("messages", total=sum(len(batch.messages) for batch in batches))
        done = progress.add_task("commits", total=len(batches))
        for batch in batches:
            owner = _owner(batch, user)
            session = clients[owner].session(batch.session_id)
            conflicts = _send(session, batch, progress, added)
            committed.append(CommittedBatch(batch, owner, _commit(session, policy), conflicts=conflicts))
            if not wait:
                progress.advance(done)
        for one in committed if wait else ():
            if one.commit.task_id:
                one.task = _follow(clients[one.user], one, progress, done)
            progress.advance(done)
        progress.update(done, description="commits")
    return committed


def _progress_console(output: Output) -> Any:
    from rich.console import Console

    return Console(stderr=True) if output.as_json else output.console


def _send(session: "Session", batch: "Batch", progress: "Progress", bar: Any) -> int:
    """Sends messages and usages. Returns how many messages the session has already with another content."""
    from runekeep.client.sessions.messages import split_calls

    conflicts = 0
    for call in split_calls(batch.messages):
        conflicts += _add_new(session, call)
        progress.advance(bar, len(call))
    for usage in batch.usages:
        session.used(usage.contexts, usage.skill)
    return conflicts


def _add_new(session: "Session", messages: "list[Message]") -> int:
    """Adds messages, and leaves those as they are that the session has with another content. Returns their number."""
    from runekeep.client.connection.errors import AlreadyExistsError

    try:
        session.add_messages(messages)
    except AlreadyExistsError:
        # An answer may have been unfinished when an older export was made. The call added nothing.
        return 1 if len(messages) == 1 else sum(_add_new(session, [message]) for message in messages)
    return 0


def _commit(session: "Session", policy: dict[str, Any] | None) -> "Commit":
    """Commits the session. While the server has too many open commits, waits as long as it says."""
    from runekeep.client.connection.errors import ResourceExhaustedError

    for _ in range(_MAX_COMMIT_ATTEMPTS):
        try:
            return session.commit(policy)
        except ResourceExhaustedError as error:
            if error.reason != "COMMIT_BACKLOG_FULL":
                raise
            time.sleep(error.retry_after or 1.0)
    fail("the server has had too many open commits for too long", "Are extractors running?")


def _follow(client: "Client", one: CommittedBatch, progress: "Progress", bar: Any) -> "Task":
    name = one.batch.session_id[:16]
    for update in client.watch_task(one.commit.task_id):
        if update.kind == "progress":
            phase = (update.progress.phase or "").replace("_", " ")
            progress.update(bar, description=f"{name} {phase} {update.progress.percent}%"[:30])
        elif update.kind == "ended":
            return update.task
    raise AssertionError("a watch ends with the task")


def _report(output: Output, committed: list[CommittedBatch], left_out: int) -> None:
    words = [_outcome(one) for one in committed]
    counts = Counter(words)
    memories: Counter[str] = Counter()
    for one in committed:
        if result := _applied(one):
            memories.update(result.memories_extracted)
    summary = {
        "messages": sum(len(one.batch.messages) for one in committed),
        "left_out_lines": left_out,
        "conflicts": sum(one.conflicts for one in committed),
        "commits": len(committed),
        "outcomes": dict(counts),
        "yielded_nothing": sum(1 for one in committed if _yielded_nothing(one)),
        "memories_extracted": dict(memories),
    }
    if output.as_json:
        details = [
            {"session": one.batch.session_id, "user": one.user, "messages": len(one.batch.messages), "outcome": word}
            | {"conflicts": one.conflicts, "commit": one.commit, "task": one.task}
            for one, word in zip(committed, words, strict=True)
        ]
        output.json({**summary, "details": details})
    else:
        _draw(output, committed, words, summary)
    if any(one.task and one.task.status != "completed" for one in committed):
        raise typer.Exit(FAILED)


def _draw(output: Output, committed: list[CommittedBatch], words: list[str], summary: dict[str, Any]) -> None:
    from rich.text import Text

    from runekeep.cli.tasks.results import format_changes

    styles = {"applied": "green", "partly_rejected": "yellow", "nothing_applied": "yellow"}
    rows = []
    for one, word in zip(committed, words, strict=True):
        result = _applied(one)
        ended_badly = one.task is not None and one.task.status in ("failed", "cancelled")
        rows.append(
            (
                one.batch.session_id,
                len(one.batch.messages),
                Text(word.replace("_", " "), style="red" if ended_badly else styles.get(word, "dim")),
                "" if result is None else format_changes(result),
                one.task.error.message if one.task and one.task.status == "failed" and one.task.error else "",
            )
        )
    output.rows(("session", "messages", "outcome", "memories", "error"), rows, "No commits.", stack=True)
    by_type = ", ".join(f"{count} {name}" for name, count in sorted(summary["memories_extracted"].items()))
    commits = format_count(summary["commits"], "commit", "commits")
    output.say(
        f"\n{format_count(summary['messages'], 'message', 'messages')} in {commits}, "
        f"{summary['yielded_nothing']} of them yielded nothing. {by_type}"
    )
    if summary["left_out_lines"]:
        output.say(f"{summary['left_out_lines']} lines that nobody said were left out.", "dim")
    if count := summary["conflicts"]:
        differ, kept = (
            ("message differs", "was kept as it was") if count == 1 else ("messages differ", "were kept as they were")
        )
        output.say(f"{count} {differ} from what was ingested before and {kept}.", "yellow")


def _outcome(one: CommittedBatch) -> str:
    if one.commit.status == "skipped":
        return "skipped"
    if one.task is None:
        return "queued"
    result = one.task.result
    return result.outcome if result is not None else one.task.status


def _applied(one: CommittedBatch) -> "CommitResult | None":
    return one.task.result if one.task and one.task.status == "completed" else None


def _yielded_nothing(one: CommittedBatch) -> bool:
    result = _applied(one)
    return result is not None and not result.total_adds + result.total_updates + result.total_deletes
