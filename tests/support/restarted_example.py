"""Runs the example of a client in another language, and restarts the server while it watches a task."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from tests.acceptance.processes import environment, processes

WAIT_SECONDS = 120.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Maven writes them to pipes too."""


async def restarted_example(command: Sequence[str | Path], cwd: Path, directory: Path) -> list[str]:
    """Returns the lines that the command prints. It prints `event N` for each event of its commit.

    The server is killed at the first event and started again, and there is no extractor before: all later events came
    over another connection, to another process.
    """
    with processes(directory) as fleet:
        server = fleet.server()
        client = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=environment({"RUNEKEEP_ADDRESS": fleet.address, "RUNEKEEP_USER": "robin"}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None and client.stderr is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                async for line in client.stdout:
                    lines.append(_COLOURS.sub("", line.decode().rstrip("\n")))
                    if lines[-1] == "event 1":
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start, fleet.address)
                        fleet.extractor("worker", "--engine", "offline")
                status = await client.wait()
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()
        assert status == 0, f"{(await client.stderr.read()).decode()}\n{lines}\n{fleet.log()}"
        return lines


def check_lines(lines: list[str]) -> None:
    """Checks what the example prints: each event once and in order, how the task ended, and what is recalled."""
    events = [line for line in lines if line.startswith("event ")]
    assert events == [f"event {number}" for number in range(1, len(events) + 1)] and len(events) >= 3, lines
    assert lines[len(events)] == "TASK_STATE_COMPLETED", lines
    assert any("tea" in line for line in lines[len(events) + 1 :]), lines
