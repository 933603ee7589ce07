"""Exports as nobody should send them: refused with a word, or a space that can be read; never anything else."""

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from runekeep_server.protocol.api_error import ApiError
from runekeep_server.spaces.import_intake import Intake, Rows
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.transfer.exports.archive import ArchiveError, ArchiveTooLarge
from runekeep_storage.transfer.exports.layout import Manifest
from runekeep_storage.transfer.exports.moving import Moving
from tests.support.exports import entries, packed, sealed
from tests.support.storage.archives import REGISTRY, Parts, exported, imported
from tests.support.storage.databases import ANN, Clock
from tests.support.storage.deletions import dump

ABSURD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**53 + 1, 2**62, 2**63, 10**30, 1.5, 1e308, "", "x", "../..", "a" * 9000, "\0",
    "viking://user/bob/memories/x.md", "viking://user/ann/memories/../../x.md", "viking://user/ann/sessions/s", [], {},
    [[[[1]]]], {"type": "text"}, "2" * 64, "commits", "done", "pending", "user:t1", ["t1"], "9999-99-99",
)  # fmt: skip


Files = Mapping[str, bytes]


async def opened(folder: Path, template: Path, clock: Clock) -> Database:
    path = folder / f"{uuid4()}.db"
    shutil.copy(template, path)
    database = SqliteDatabase(path, clock=clock)
    await database.open()
    return database


def taken(archive: bytes, rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    """What an import would write. Raises ArchiveError, ArchiveTooLarge."""
    intake = Intake(REGISTRY, 10**8)
    found: dict[str, list[dict[str, Any]]] = {}
    place = 0
    while place < len(archive):
        step = rng.choice((1, 100, 5000, 100_000))
        intake.feed(archive[place : place + step])
        place += step
        while (done := intake.step()) is not None:
            match done:
                case Manifest():
                    intake.moving = Moving(done.user, "ann", 100, done.revision)
                case Rows(table, rows, _):
                    found.setdefault(table, []).extend(rows)
    intake.close()
    return found


def test_what_is_sound_is_taken(archive_files: Files) -> None:
    rng = random.Random(1)
    once = taken(sealed(archive_files.items()), rng)
    assert once == taken(sealed(archive_files.items()), rng)
    assert len(once["messages"]) == 66 and len(once["memories"]) == 20
    assert {row["rev_from"] for row in once["memories"]} == set(range(101, 121))


@pytest.mark.parametrize("seed", range(8))
def test_bytes_that_were_flipped_cut_or_moved_are_refused(archive_files: Files, seed: int) -> None:
    rng = random.Random(seed)
    archive = sealed(archive_files.items())
    for _ in range(25):
        damaged = bytearray(archive)
        match rng.randrange(4):
            case 0:
                for _ in range(rng.choice((1, 1, 5))):
                    damaged[rng.randrange(10, len(damaged))] ^= rng.randrange(1, 256)
            case 1:
                del damaged[rng.randrange(len(damaged)) :]
            case 2:
                start = rng.randrange(10, len(damaged) - 50)
                del damaged[start : start + rng.randrange(1, 50)]
            case _:
                start, length = rng.randrange(10, len(damaged) - 200), rng.randrange(1, 100)
                damaged[start:start] = damaged[start + length : start + 2 * length]
        if bytes(damaged) == archive:
            continue
        with pytest.raises((ArchiveError, ArchiveTooLarge)):
            taken(bytes(damaged), rng)


@pytest.mark.parametrize("seed", range(8))
def test_entries_that_are_missing_doubled_renamed_or_moved_are_refused(archive_files: Files, seed: int) -> None:
    """With and without a checksum that agrees."""
    rng = random.Random(seed)
    for number in range(25):
        files = list(archive_files.items())
        inside = [place for place, (name, _) in enumerate(files) if name.endswith(".jsonl") or name == "manifest.json"]
        place = rng.choice(inside)
        name, content = files[place]
        match rng.randrange(5):
            case 0:
                del files[place]
            case 1:
                files.insert(rng.randrange(len(files)), (name, content))
            case 2:
                other = rng.choice([one for one in inside if one != place])
                files[place], files[other] = files[other], files[place]
            case 3:
                new = rng.choice(
                    ("../" + name, "/" + name, name + "/", "data//x.jsonl", "x", name.upper(), "sessions/../" + name)
                )
                files[place] = (new, content)
            case _:
                files.insert(
                    place, (rng.choice(("memories/../../x", "skills//x", "/etc/passwd", "memories/a\0b")), b"x")
                )
        pack = packed if number % 2 else sealed
        with pytest.raises((ArchiveError, ArchiveTooLarge)):
            taken(pack(files), rng)


@pytest.mark.parametrize("name", ["sessions/s/messages.jsonl", "memories/preferences/n1.md"])
def test_what_was_changed_and_packed_again_is_told_by_its_checksum(archive_files: Files, name: str) -> None:
    """Well formed as it is."""
    changed = {
        **archive_files,
        name: archive_files[name].replace(b"content", b"CONTENT").replace(b"still live", b"still LIVE"),
    }
    assert changed[name] != archive_files[name]
    with pytest.raises(ArchiveError, match="checksum"):
        taken(packed(changed.items()), random.Random(1))


def mutated(content: bytes, rng: random.Random) -> bytes:
    """One value of one line is another."""
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    row = json.loads(lines[at])
    place: Any = row
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        match rng.randrange(8):
            case 0 if isinstance(place, dict):
                del place[key]
            case 1 if isinstance(place, dict):
                place["more"] = place[key]
            case 2 if isinstance(place[key], int):
                place[key] += rng.choice((-1, 1))
            case _:
                place[key] = rng.choice(ABSURD)
        break
    lines[at] = json.dumps(row, ensure_ascii=rng.random() < 0.5).encode() + b"\n"
    if rng.random() < 0.1:
        lines[at] = rng.choice(
            (b"{}\n", b"[]\n", b"\xff\n", b"null\n", b'{"a":' * 2000 + b"\n", lines[at] * 2, b"NaN\n", b"\n")
        )
    return b"".join(lines)


@pytest.mark.parametrize("seed", range(15))
async def test_absurd_values_are_refused_or_make_a_space_that_can_be_read(
    archive_files: Files, tmp_path: Path, migrated_file: Path, clock: Clock, seed: int
) -> None:
    """What passes may be exported again: each row was read then, in the form that everybody reads it in."""
    rng = random.Random(seed)
    refused = passed = 0
    tables = [name for name, content in archive_files.items() if name.endswith(".jsonl") and content]
    for _ in range(12):
        name = rng.choice(tables)
        files = {**archive_files, name: mutated(archive_files[name], rng)}
        archive = sealed(files.items())
        try:
            taken(archive, rng)
        except (ArchiveError, ArchiveTooLarge):
            refused += 1
            continue
        database = await opened(tmp_path, migrated_file, clock)
        blobs = FolderBlobs(tmp_path / f"blobs-{uuid4()}")
        parts = Parts(database, blobs)
        try:
            await imported(parts, archive)
            passed += 1
            again = entries(await exported(parts))
            assert list(again) and len(await dump(database, ANN)) > 8
        except ApiError as error:
            assert error.reason == 22, error
            refused += 1
        finally:
            await database.close()
    assert refused
