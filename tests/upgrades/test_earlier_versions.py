"""A store, a backup and an export that an earlier version wrote open, migrate and answer as they did."""

import json
import lzma
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.conftest import CHANNEL_OPTIONS
from tests.support.callers import Caller
from tests.support.exports import differences, everything, imported
from tests.support.server_process import ROOT, ServerProcess
from tests.upgrades.record import ACCOUNT, SETTINGS, USER

CHANGES_WITH_AGE = re.compile(r"signals |context \S+ (gate|reconciler)$")
"""Answers that look back a limited time from now."""
PAST_SEARCH = re.compile(r"find \d+$")
"""Searches as of an earlier revision."""
VERSIONS = sorted(path for path in (Path(__file__).parent / "data").iterdir() if path.is_dir())


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def version(request: pytest.FixtureRequest) -> Path:
    """The folder of what one version wrote; `tests.upgrades.record` says what is in it. r0001 had no backups."""
    assert isinstance(request.param, Path)
    return request.param


# What directories say of themselves is made when it is read: earlier versions counted and named, in the order of names.
# A tool.json was of a large output alone, and a tool memory said 0 where a duration or tokens were unknown.
SAYS_MORE_NOW = re.compile(
    r"/(tree|glob)[^:]*/abstract: \"\d+ (entry|entries): "
    r"|/read viking://user/[^/]+(?!/sessions)(/[^:]*)?/\.(abstract|overview)\.md/(text|totalCharacters): "
    r"|/read viking://\S*(/memories/tools/[^/]+\.md|/tools/[^/]+/tool\.json)( \d+)?/(text|totalLines|totalCharacters): "
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Not started; its data directory is not there."""
    process = ServerProcess(tmp_path / "data", SETTINGS)
    yield process
    process.discard()


def unpack(archive: Path, directory: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")


async def answers(server: ServerProcess, archive: Path | None = None) -> dict[str, Any]:
    """All that the server says of the user, into whom the archive is imported first."""
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        caller = Caller(channel, USER, ACCOUNT)
        if archive is not None:
            await imported(caller, archive.read_bytes())
        found: dict[str, Any] = json.loads(json.dumps(await everything(caller)))
        return found


def recorded(version: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((version / "answers.json.xz").read_bytes()))
    return found


def assert_same(before: dict[str, Any], now: dict[str, Any], *, except_for: re.Pattern[str] = CHANGES_WITH_AGE) -> None:
    held = {name: answer for name, answer in before.items() if not except_for.match(name)}
    assert len(held) > 100
    found = [line for line in differences(held, now, ignore_added=True) if not SAYS_MORE_NOW.match(line)]
    assert not found, "\n".join(found)


async def test_a_store_opens_and_answers_the_same(version: Path, server: ServerProcess) -> None:
    unpack(version / "store.tar.xz", server.data_dir)

    server.start()

    assert_same(recorded(version), await answers(server))


@pytest.mark.parametrize("version", [one for one in VERSIONS if (one / "backup.tar.xz").exists()], indirect=True)
async def test_a_backup_is_restored_and_answers_the_same(version: Path, server: ServerProcess, tmp_path: Path) -> None:
    unpack(version / "backup.tar.xz", tmp_path / "backup")
    command = ["restore", str(tmp_path / "backup"), "--data-dir", str(server.data_dir)]

    subprocess.run([sys.executable, "-m", "runekeep", *command], cwd=ROOT, check=True)
    server.start()

    assert_same(recorded(version), await answers(server))


async def test_an_export_is_imported_and_answers_the_same(version: Path, server: ServerProcess) -> None:
    server.start()

    now = await answers(server, version / "export.tar.gz")

    # An import makes vectors of current versions only, so a search of the past finds fewer memories.
    either = re.compile(f"{CHANGES_WITH_AGE.pattern}|{PAST_SEARCH.pattern}")
    assert_same(recorded(version), now, except_for=either)
