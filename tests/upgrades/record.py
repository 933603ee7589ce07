"""Records what this version writes, for later versions to read.

Run `python -m tests.upgrades.record tests/upgrades/data/NAME` before you change a table, the index's points, or the
format of exports or backups. The folder gets `store.tar.xz` (a data directory whose server was stopped),
`backup.tar.xz`, `export.tar.gz` and `answers.json.xz` (all that the API says of the space).
"""

import asyncio
import json
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from tests.integration.conftest import CHANNEL_OPTIONS
from tests.support.callers import Caller
from tests.support.exports import everything, exported, lived
from tests.support.server_process import ROOT, ServerProcess

USER = "ann"
ACCOUNT = "acme"
SETTINGS = {
    "RUNEKEEP_EMBEDDER": "minilm",
    # Tasks that ended are forgotten after a month; here they have to be read for years.
    "RUNEKEEP_TASK_RETENTION_DAYS": "36500",
    "RUNEKEEP_AUDIT_RETENTION_DAYS": "36500",
}


async def _fill(server: ServerProcess, folder: Path) -> None:
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        caller = Caller(channel, USER, ACCOUNT)
        await lived(caller)
        # An open task would be given up a day after its commit, and answers would change by themselves.
        await caller.cancel_open()
        answers = await everything(caller)
        (folder / "export.tar.gz").write_bytes(await exported(caller))
    (folder / "answers.json.xz").write_bytes(lzma.compress(json.dumps(answers).encode()))


def _pack(directory: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(directory, arcname=".")


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    with TemporaryDirectory() as place:
        data_dir, backup = Path(place) / "data", Path(place) / "backup"
        server = ServerProcess(data_dir, SETTINGS).start()
        try:
            asyncio.run(_fill(server, folder))
            command = [sys.executable, "-m", "runekeep", "backup", str(backup), "--data-dir", str(data_dir)]
            subprocess.run(command, cwd=ROOT, check=True)
            server.stop()
        finally:
            server.discard()
        _pack(data_dir, folder / "store.tar.xz")
        _pack(backup, folder / "backup.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
