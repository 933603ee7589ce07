"""Shared options of the commands that serve HTTP, and the lines that print their URL."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from runekeep.cli.common.output import Output

TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate in PEM, for addresses of a network.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key in PEM.")]
Names = Annotated[
    list[str] | None, typer.Option("--name", metavar="HOST", help="A name by which clients call; may be repeated.")
]


def make_announcer(
    output: Output, kind: str, title: str, example: Callable[[str], str] | None = None
) -> Callable[[str], None]:
    """Returns a function that prints a server's URL. With --json it prints the URL under the key `kind`. Otherwise it
    prints `title` and the URL, then the call that `example` returns."""

    def announce(url: str) -> None:
        if output.as_json:
            output.json({"event": "serving", kind: url})
            return
        from rich.text import Text

        # Not say(), which leaves the line in a buffer while the server runs.
        output.console.print(Text.assemble(f"{title} on ", (url, "bold green")), soft_wrap=True)
        if example:
            output.console.print(Text(f"Try it: {example(url)}"), soft_wrap=True)

    return announce
