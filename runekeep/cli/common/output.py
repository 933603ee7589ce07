"""Prints results: tables and trees for people, JSON for programs."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_UNBOUNDED = 10_000
"""Columns of a console that would have room for every row."""


class Output:
    """Prints the result of one command. With `as_json`, stdout gets JSON only."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        """The console for people. Not used with `as_json`."""
        if self._console is None:
            from runekeep.cli.common.terminal import Terminal

            self._console = Terminal(highlight=False)
        return self._console

    def json(self, value: Any) -> None:
        """Prints a value, which may hold results of the client, as JSON on one line."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=lambda result: result.to_dict()) + "\n")
        sys.stdout.flush()

    def say(self, text: "Text | str", style: str = "") -> None:
        """Prints text without reading it as markup. Only a terminal wraps lines, so that URIs can be copied whole."""
        from rich.text import Text

        if not self.console.is_terminal:
            sys.stdout.write((text if isinstance(text, str) else text.plain) + "\n")
            return
        self.console.print(Text(text) if isinstance(text, str) else text, style=style or None, soft_wrap=True)

    def code(self, text: str, lexer: str) -> None:
        """Prints a document, on a terminal coloured and wrapped to its width."""
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
        stack: bool = False,
    ) -> None:
        """Prints a table, or the sentence `empty` if there are no rows. Texts are not read as markup.

        The column `whole` is never wrapped, so that its values can be copied. The columns `numbers` are right-aligned
        and not wrapped; a value that has no room ends in an ellipsis. `stack`: if the columns have no room side by
        side, the first value of each row gets a line of its own, and the others follow below it with their names.
        """
        from rich.measure import Measurement
        from rich.table import Table
        from rich.text import Text

        columns = list(columns)
        cells = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            if column in numbers:
                table.add_column(column, justify="right", overflow="ellipsis", no_wrap=True)
            else:
                table.add_column(column, overflow="fold", no_wrap=column == whole)
        for row in cells:
            table.add_row(*row)
        console = self.console
        if not cells:
            console.print(Text(empty, style="dim"))
        elif (
            stack and Measurement.get(console, console.options.update_width(_UNBOUNDED), table).maximum > console.width
        ):
            self._stack(columns, cells)
        else:
            console.print(table)

    def _stack(self, columns: Sequence[str], rows: "Iterable[Sequence[Text]]") -> None:
        from rich.padding import Padding
        from rich.text import Text

        for first, *others in rows:
            self.say(first)
            named = [
                Text.assemble((f"{column} ", "dim"), cell)
                for column, cell in zip(columns[1:], others, strict=True)
                if cell.plain
            ]
            self.console.print(Padding(Text("  ").join(named), (0, 0, 0, 4), expand=False))
