"""Runs the tour of a client in another language, and breaks its connection while it watches a task."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.processes import Processes, environment
from tests.crash.tunnel import Tunnel

WAIT_SECONDS = 120.0


async def broken_tour(
    fleet: Processes,
    command: list[str],
    cwd: Path,
    variables: Mapping[str, str] | None = None,
    extractor: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The steps that `command ADDRESS` prints, JSON objects with a `step`, against the server of `fleet`. `variables`
    are those of the client, `extractor` those of the extractor.

    All connections are cut when it tells the first event of its commit, and no extractor is there before it says
    `resumed`: what comes after the first event can only have come over another stream.
    """
    tunnel = Tunnel(int(fleet.address.rpartition(":")[2]))
    await tunnel.start()
    try:
        client = await asyncio.create_subprocess_exec(
            *(*command, f"127.0.0.1:{tunnel.port}"),
            cwd=cwd,
            env=environment(variables),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None and client.stderr is not None
        steps: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                async for line in client.stdout:
                    steps.append(json.loads(line))
                    match steps[-1]["step"]:
                        case "event" if steps[-1]["sequence"] == 1:
                            assert tunnel.cut() >= 1
                        case "resumed":
                            fleet.extractor("worker", "--engine", "offline", **(extractor or {}))
                status = await client.wait()
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()
        assert status == 0, f"{(await client.stderr.read()).decode()}\n{steps[-3:]}\n{fleet.log()}"
    finally:
        await tunnel.stop()
    sequences = [step["sequence"] for step in steps if step["step"] == "event"]
    assert sequences == list(range(1, len(sequences) + 1)) and len(sequences) >= 3, "each event once and in order"
    names = [step["step"] for step in steps]
    assert names.count("resumed") == 1 and names.index("resumed") == names.index("event") + 1
    assert steps[names.index("resumed")]["after"] == 1
    return steps
