"""Prints errors on stderr, with what to do about them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import typer

from runekeep.cli.common.api_words import in_command_words

if TYPE_CHECKING:
    from runekeep.client.connection.errors import RunekeepError

FAILED = 1
"""Exit status of a command that failed."""

_WHAT_TO_DO = {
    "UNAVAILABLE": "Is a server running there? `runekeep up` starts one; --address or RUNEKEEP_ADDRESS names another.",
    "COMMIT_NOT_FINISHED": "Wait for it: `runekeep task watch TASK`.",
    "COMMIT_BACKLOG_FULL": "Wait until open tasks have ended: `runekeep task list`. Are extractors running?",
    "NO_MODEL_ANSWER": "Connect an extractor with a model, or ask without --model-only.",
    "BUCKETS_DISABLED": "Start the server without RUNEKEEP_MEMORY_RECONCILE_ENABLED=false and LONG_MEMORIES_LOG=1.",
    "TASK_STATE": "See the state of the task: `runekeep task show TASK`.",
    "VERSION_MISMATCH": "Read the current version: `runekeep memory read URI --fields`.",
    "ROLLBACK_CONFLICT": "See what would be lost: `runekeep history rollback REVISION --preview`; --force does it.",
    "PROPOSAL_DECIDED": "See what is still open: `runekeep proposal show TASK`.",
    "PATCH_NOT_APPLICABLE": "Read the current text: `runekeep memory read URI`.",
    "INDEX_BEHIND": "The index catches up on its own; ask again, or without --min-revision.",
    "DEADLINE_EXCEEDED": "Ask again; the server is slow or busy.",
    "SPACE_NOT_EMPTY": "Use another --user without data, or delete this one first: `runekeep user delete`; "
    "for a copy, `runekeep user copy --replace`.",
    "EXPORT_INVALID": "Check that the file is complete, as `runekeep export` wrote it.",
    "SPACE_BUSY": "The user is being deleted, erased or imported; try again.",
    "UNAUTHENTICATED": "Set RUNEKEEP_API_KEY to your key; --account and --user select the user you call for.",
    "PERMISSION_DENIED": "Your key or certificate is for another account, user or service: see --account and --user.",
}


def print_error(message: str, what_to_do: str = "") -> None:
    """Prints an error on stderr, with what to do about it."""
    from rich.text import Text

    from runekeep.cli.common.terminal import Terminal

    console = Terminal(stderr=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    if what_to_do:
        console.print(Text(what_to_do, style="yellow"), soft_wrap=True)


def fail(message: str, what_to_do: str = "", *, status: int = FAILED) -> NoReturn:
    print_error(message, what_to_do)
    raise typer.Exit(status)


def fail_with(error: "RunekeepError", advice: Mapping[str, str] | None = None) -> NoReturn:
    """Ends the command with the error of a call. `advice`: what the command itself recommends, by gRPC code."""
    from runekeep.client.connection.errors import TlsError

    # The message of a TlsError says what to do.
    known = not isinstance(error, TlsError)
    what = (advice or {}).get(error.code) or _WHAT_TO_DO.get(error.reason) or _WHAT_TO_DO.get(error.code, "")
    fail(in_command_words(str(error)), what if known else "")
