"""What commands say: tables and trees for people, JSON for programs, errors on stderr."""

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from runekeep.client.errors import RunekeepError

FAILED = 1

_WHAT_TO_DO = {
    "UNAVAILABLE": "Is a server running there? `runekeep up` starts one; --address or RUNEKEEP_ADDRESS names another.",
    "NOT_FOUND": "See what there is: `runekeep session list`, `runekeep turn list SESSION`, `runekeep task list`, "
    "`runekeep memory tree`, `runekeep history list`. Another user's things need --user.",
    "COMMIT_NOT_FINISHED": "Wait for it: `runekeep task watch TASK`.",
    "COMMIT_BACKLOG_FULL": "Wait until open tasks have ended: `runekeep task list`. Are extractors running?",
    "BUCKETS_DISABLED": "Start the server without RUNEKEEP_MEMORY_RECONCILE_ENABLED=false and LONG_MEMORIES_LOG=1.",
    "TASK_STATE": "See how the task stands: `runekeep task show TASK`.",
    "VERSION_MISMATCH": "See what is there now, and its version: `runekeep memory read URI --fields`.",
    "ROLLBACK_CONFLICT": "See what would be lost: `runekeep history rollback REVISION --preview`; --force does it.",
    "PATCH_NOT_APPLICABLE": "See the text as it is now: `runekeep memory read URI`.",
    "INDEX_BEHIND": "The index catches up on its own; ask again, or without --min-revision.",
    "DEADLINE_EXCEEDED": "Ask again; the server is slow or busy.",
    "SPACE_NOT_EMPTY": "Import as another user with --user, or erase this one first: `runekeep erase user`.",
    "EXPORT_INVALID": "Is it the whole file, as `runekeep export` wrote it?",
    "SPACE_BUSY": "The user is being deleted, erased or imported; try again.",
    "UNAUTHENTICATED": "Name who you are: RUNEKEEP_API_KEY holds your key, --account and --user say for whom you call.",
    "PERMISSION_DENIED": "Your key or certificate is for another account, user or service: see --account and --user.",
}


class Output:
    """Where one command writes. With `as_json`, stdout holds JSON alone and nothing is drawn."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        """For people; only when `as_json` is off."""
        if self._console is None:
            from runekeep.cli.terminal import Terminal

            self._console = Terminal(highlight=False)
        return self._console

    def json(self, value: Any) -> None:
        """One JSON text on one line of stdout."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def say(self, text: "Text | str", style: str = "") -> None:
        """Text as it is, never read as markup, and to the letter where no terminal is. Only a terminal breaks lines, so
        that URIs can be copied whole."""
        from rich.text import Text

        if not self.console.is_terminal:
            sys.stdout.write((text if isinstance(text, str) else text.plain) + "\n")
            return
        self.console.print(Text(text) if isinstance(text, str) else text, style=style or None, soft_wrap=True)

    def code(self, text: str, lexer: str) -> None:
        """A document, coloured and broken to the width of a terminal; anywhere else to the letter."""
        if not self.console.is_terminal:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            return
        from rich.syntax import Syntax

        self.console.print(Syntax(text, lexer, background_color="default", word_wrap=True))

    def rows(
        self,
        columns: Iterable[str],
        rows: Iterable[Iterable[Any]],
        empty: str,
        whole: str | None = None,
        numbers: Collection[str] = (),
    ) -> None:
        """A table, or the sentence `empty`. Texts are shown as they are, never read as markup.

        The column named `whole` is not broken over lines: what it holds is to be copied. Nor are `numbers`, which stand
        to the right; where a terminal has no room for one, dots say that it goes on.
        """
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            if column in numbers:
                table.add_column(column, justify="right", overflow="ellipsis", no_wrap=True)
            else:
                table.add_column(column, overflow="fold", no_wrap=column == whole)
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
        self.console.print(table if table.row_count else Text(empty, style="dim"))


def counted(number: int, one: str, many: str) -> str:
    """The number with what it counts: `one` thing, or `many`."""
    return f"{number} {one if number == 1 else many}"


def minute(time: str | None) -> str:
    """A time of an answer, which is in UTC, to the minute; empty for None."""
    return time[:16].replace("T", " ") + " UTC" if time else ""


def complain(message: str, what_to_do: str = "") -> None:
    """Says on stderr what went wrong, and what helps."""
    from rich.text import Text

    from runekeep.cli.terminal import Terminal

    console = Terminal(stderr=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    if what_to_do:
        console.print(Text(what_to_do, style="yellow"), soft_wrap=True)


def fail(message: str, what_to_do: str = "", *, status: int = FAILED) -> NoReturn:
    complain(message, what_to_do)
    raise typer.Exit(status)


def fail_with(error: "RunekeepError", advice: Mapping[str, str] | None = None) -> NoReturn:
    """Ends the command for an error of a call. `advice`: what the command itself knows to do, by gRPC code."""
    from runekeep.client.errors import TlsError

    # It says what to do itself.
    known = not isinstance(error, TlsError)
    what = (advice or {}).get(error.code) or _WHAT_TO_DO.get(error.reason) or _WHAT_TO_DO.get(error.code, "")
    fail(str(error), what if known else "")
