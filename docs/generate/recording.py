"""Records docs/pictures/terminal.svg from a real run: a server, a conversation taken in, and what is found of it.

    python -m docs.generate.recording

The output of the commands is theirs to the letter; long outputs end after the lines that `SHOWN_LINES` allows.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS, SHOWN_LINES = 96, 9
COMMANDS = (
    "runekeep ingest examples/conversation.jsonl --user mara --peers",
    'runekeep memory find "When does the kiln arrive?" --user mara --limit 3',
    'runekeep recall "When does the kiln arrive?" --token-budget 200 --user mara',
    "runekeep memory diff studio-wednesday --user mara",
)


def record() -> None:
    """Starts a server on a directory of its own, runs `COMMANDS` against it, and writes the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "runekeep", "up", "--json", "--address", "127.0.0.1:0", "--data-dir"]
        up = subprocess.Popen(
            [*command, folder], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert up.stdout is not None
        try:
            address = str(json.loads(up.stdout.readline())["address"])
            for line in COMMANDS:
                _show(console, line, _output(line, address))
        finally:
            up.terminate()
            up.wait(60)
            up.stdout.close()
    TARGET.parent.mkdir(exist_ok=True)
    # Without the web fonts that rich names: the picture loads nothing from elsewhere.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="runekeep"), flags=re.DOTALL)
    TARGET.write_text(picture.replace("Fira Code, monospace", "monospace"), encoding="utf-8")


def _output(line: str, address: str) -> list[str]:
    environment = {**os.environ, "RUNEKEEP_ADDRESS": address, "COLUMNS": str(COLUMNS)}
    if " ingest " not in line:
        # With colours `ingest` draws a bar of progress over itself, which a recording would show many times.
        environment["FORCE_COLOR"] = "1"
    ran = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.rstrip().splitlines()


def _show(console: Console, line: str, output: list[str]) -> None:
    console.print(Text.assemble(("$ ", "green"), (line, "bold")))
    for one in output[:SHOWN_LINES]:
        console.print(Text.from_ansi(one), no_wrap=True, overflow="ellipsis")
    if len(output) > SHOWN_LINES:
        console.print(Text("...", style="dim"))
    console.print()


if __name__ == "__main__":
    record()
