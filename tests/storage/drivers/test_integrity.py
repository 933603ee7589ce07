"""The process that checks SQLite's file: nothing waits for one that hangs, and it does not outlive its server.

A pipe stands for a file on a disk that does not answer: opening it blocks until somebody writes to it.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runekeep_storage.damage import Damage
from runekeep_storage.drivers.sqlite import integrity_process
from runekeep_storage.drivers.sqlite.integrity import IntegrityCheck
from tests.support.waiting import until

END_SECONDS = 60


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "runekeep.db")
    return tmp_path / "runekeep.db"


def checking(file: Path) -> list[str]:
    """Returns the ids of processes that check that file."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(file) in (process / "cmdline").read_bytes():
                found.append(process.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_a_check_that_hangs_holds_up_neither_start_nor_end(hanging: Path) -> None:
    check = IntegrityCheck(hanging, Damage(), start_seconds=0.1, interval=0)
    async with asyncio.timeout(END_SECONDS):
        await check.check_at_start()
        await asyncio.to_thread(until, lambda: checking(hanging))
        await check.stop()
    assert not checking(hanging) and check.last is None


def test_the_process_ends_with_whoever_started_it(hanging: Path) -> None:
    command = [sys.executable, "-I", "-S", integrity_process.__file__, "full", str(hanging)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(END_SECONDS) == 1
        finally:
            process.kill()


async def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "runekeep.db").mkdir()
    damage = Damage()
    check = IntegrityCheck(tmp_path / "runekeep.db", damage, start_seconds=END_SECONDS, interval=0)
    await check.check_at_start()
    assert check.last is None and damage.finding is None
