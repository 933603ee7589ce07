"""The archive of an export: what is written is read, in pieces of any size, by anybody; and nothing else is."""

import gzip
import io
import random
import tarfile
import zlib
from contextlib import suppress

import pytest

from runekeep_storage.transfer.exports.archive import (
    LAST,
    ArchiveError,
    ArchiveTooLarge,
    Begin,
    Data,
    Reader,
    Writer,
)

FILES = [
    ("manifest.json", b"{}"),
    ("memories/" + "é" * 120 + "/" + "x" * 200 + ".md", b"abc" * 1000),
    ("empty", b""),
    ("a block", b"q" * 512),
    ("long", bytes(random.Random(1).randbytes(700_000))),
]
MOST = 10**7


def written(files: list[tuple[str, bytes]] = FILES) -> bytes:
    writer = Writer()
    for name, content in files:
        writer.begin(name, len(content), 1_700_000_000)
        for start in range(0, len(content), 100_000):
            writer.data(content[start : start + 100_000])
    taken = writer.take()
    writer.finish(writer.digest.hexadecimal().encode())
    return taken + writer.take()


def read(archive: bytes, step: int = 10**9, most: int = MOST) -> list[tuple[str, bytes]]:
    reader, found = Reader(most), list[list[bytes | str]]()
    for start in range(0, len(archive), step):
        reader.feed(archive[start : start + step])
        while (event := reader.next()) is not None:
            match event:
                case Begin(name, size):
                    found.append([name, b""])
                    assert size >= 0
                case Data(data, _):
                    assert len(data) <= 512 * 1024
                    found[-1][1] += data  # type: ignore[operator]  # bytes
    reader.close()
    *files, (last, digest) = found
    assert last == LAST and digest == reader.digest.hexadecimal().encode()
    return [(str(name), bytes(content)) for name, content in files]  # type: ignore[arg-type]  # bytes


@pytest.mark.parametrize("step", [1, 13, 511, 512, 4096, 10**9])
def test_what_is_written_is_read_in_pieces_of_any_size(step: int) -> None:
    archive = written() if step > 100 else written(FILES[:4])
    assert read(archive, step) == (FILES if step > 100 else FILES[:4])


def test_other_programs_read_it_and_write_what_is_read() -> None:
    with tarfile.open(fileobj=io.BytesIO(written()), mode="r:gz") as tar:
        found = [(member.name, opened.read()) for member in tar if (opened := tar.extractfile(member)) is not None]
    assert found[:-1] == FILES


def test_the_same_entries_are_the_same_archive() -> None:
    assert written() == written()


def test_every_flipped_byte_is_noticed() -> None:
    archive = written(FILES[:4])
    unnoticed = []
    for place in range(len(archive)):
        if place in range(3, 10):
            # Flags, time and system in the head of gzip: some say nothing of the content.
            continue
        damaged = bytearray(archive)
        damaged[place] ^= 1 << (place % 8)
        with suppress(OSError, EOFError, zlib.error):
            if gzip.decompress(damaged) == gzip.decompress(archive):
                # Said in another way: a repetition may be told by any distance.
                continue
        try:
            if read(bytes(damaged)) == FILES[:4]:
                unnoticed.append(place)
        except (ArchiveError, AssertionError):
            pass
    assert not unnoticed


def test_every_cut_is_noticed() -> None:
    archive = written(FILES[:4])
    for length in range(0, len(archive) - 1):
        with pytest.raises(ArchiveError):
            reader = Reader(MOST)
            reader.feed(archive[:length])
            while reader.next() is not None:
                pass
            reader.close()


def test_what_inflates_without_end_is_stopped() -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1024 * 1024)
    archive = b"".join([*(bomb.compress(zeros) for _ in range(100)), bomb.flush()])
    assert len(archive) < 200_000
    info = tarfile.TarInfo("manifest.json")
    info.size = 10**9
    head = zlib.compressobj(9, zlib.DEFLATED, 31)
    endless = head.compress(info.tobuf()) + b"".join(head.compress(zeros) for _ in range(50)) + head.flush()
    with pytest.raises(ArchiveTooLarge):
        read(endless, most=10_000_000)
    with pytest.raises((ArchiveTooLarge, ArchiveError)):
        read(archive, most=10_000_000)


def one(info: tarfile.TarInfo, content: bytes = b"") -> bytes:
    info.size = len(content)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue())


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_only_plain_files_are_read(kind: bytes) -> None:
    info = tarfile.TarInfo("manifest.json")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(ArchiveError, match="no plain file"):
        read(one(info))


@pytest.mark.parametrize("headers", [{"size": "5"}, {"path": "a", "uid": "7"}, {"comment": "x" * 20_000}])
def test_extended_headers_hold_names_alone(headers: dict[str, str]) -> None:
    info = tarfile.TarInfo("manifest.json")
    info.pax_headers = headers
    with pytest.raises(ArchiveError, match="header"):
        read(one(info))


@pytest.mark.parametrize("more", [b"x", gzip.compress(b"more", mtime=0), bytes(600)])
def test_nothing_may_follow_the_end(more: bytes) -> None:
    with pytest.raises(ArchiveError, match="follows"):
        read(written() + more)


def test_zeros_may_follow_the_last_entry_and_nothing_else() -> None:
    plain = gzip.decompress(written(FILES[:1]))
    assert read(gzip.compress(plain + bytes(10_240))) == FILES[:1]
    with pytest.raises(ArchiveError, match="follows"):
        read(gzip.compress(plain + bytes(512) + b"x" * 512))
